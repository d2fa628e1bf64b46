"""Makes the marks of sterna.testing work in this suite, and runs the whole of it on all cores."""

import hypothesis
import pytest

# How long an example may take says more about the machine than about the code.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")

pytest_plugins = ["sterna.testing.plugin", "tests.left_behind", "pytester"]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use a process per core where the whole suite runs and pytest-xdist is there.

    A few files are through before other processes have started: they run in this one.
    """
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    told = getattr(config.option, "numprocesses", 0) is not None
    if not named and not told and not hasattr(config, "workerinput"):
        config.option.numprocesses = "auto"
        if config.option.dist == "no":
            config.option.dist = "worksteal"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Processes share tests by name: a name with an address in it is another in each of them."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid} has an address in its name; give it an id")
