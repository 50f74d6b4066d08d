// Numbers and times as people read them.
export function number(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1).replace("e+", "e").replace("-", "−");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

export function ago(seconds) {
  if (seconds < 120) return `${Math.max(1, Math.floor(seconds))} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

export function clock(time) {
  return new Date(1000 * time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

// A value of the input that is the time, by its units: "days since 1970-01-01", say, or none.
export function moment(value, units) {
  const length = { days: 86_400_000, hours: 3_600_000, seconds: 1000 }[(units || "").split(" ")[0]];
  if (!length || !(Math.abs(value * length) < 8e15)) return number(value);
  return `${new Date(Math.round(value * length / 60_000) * 60_000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

export function bytes(count) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count >= size) return `${number(count / size)} ${unit}`;
  }
  return `${Math.round(count)} B`;
}

export function listed(names, most = 6) {
  if (!names.length) return "nobody";
  if (names.length > most) return `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
  return names.length === 1 ? names[0] : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
