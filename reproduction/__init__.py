"""The paper's experiments: its tables and figures, made again and compared with what it reports."""
