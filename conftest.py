"""Makes the marks of sterna.testing work in this suite."""

pytest_plugins = ["sterna.testing.plugin", "pytester"]
