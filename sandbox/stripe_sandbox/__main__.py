"""`python -m sandbox.stripe_sandbox`: the same as `tailrace stripe-sandbox`."""

import sys

from sandbox.stripe_sandbox.commands import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
