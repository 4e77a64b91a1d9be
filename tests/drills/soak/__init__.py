"""The soak: faults by chance for as long as one likes, and the books are exact afterwards.

`plan` says what happens when, from a seed; `service` records usage as a service does that lives
through it; `crew` are the workers; `storm` does to the stack what the plan says; `people` decide
what is dead or in doubt afterwards; `evidence` is what a failure leaves.
"""
