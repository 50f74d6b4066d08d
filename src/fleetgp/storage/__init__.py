"""What is on disk: model folders, finished pieces of long work, answers and maps."""
