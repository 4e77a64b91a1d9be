"""`python -m sandbox.demo`: what `tailrace demo` does."""

from streams.cli.entry import enter

if __name__ == "__main__":
    enter("sandbox.demo.story")
