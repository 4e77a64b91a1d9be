"""`python -m sandbox`: what `tailrace sandbox` does, for processes that start it themselves."""

from streams.cli.entry import enter

if __name__ == "__main__":
    enter("sandbox.commands")
