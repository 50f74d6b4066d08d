"""Who belongs to the fleet now: pure rules that are fed with records and clocks, and tested by random schedules."""
