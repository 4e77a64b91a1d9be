"""What Stripe's documentation leaves open: the questions, why they matter, what is assumed.

An assumption is what the product does until somebody has asked; it is safe under either answer
unless it says otherwise.
"""

from typing import Final, NamedTuple


class Question(NamedTuple):
    """One question to a real account."""

    id: str
    asks: str
    why: str
    assumed: str


QUESTIONS: Final = (
    Question(
        "identifier-horizon",
        "How long after its receipt is an identifier refused?",
        "Past that a repeated request counts again.",
        "At least 24 hours; nothing in doubt is sent again after 23.",
    ),
    Question(
        "identifier-and-meter",
        "Is an identifier that one meter holds refused on another?",
        "If it is not, two meters may share one; if it is, they must not.",
        "It may be; ours name meter, customer and window, so none is ever shared.",
    ),
    Question(
        "identifier-and-customer",
        "Is an identifier that was used for one customer refused for another?",
        "If it is not, an amount sent to a wrong customer cannot be found by repeating it.",
        "It may be; a meter event's customer never changes.",
    ),
    Question(
        "unknown-customer",
        "What is answered for a customer that does not exist?",
        "A refusal is a dead letter at once; a success is taken back by a report later.",
        "Either; both end as a dead letter with the reason.",
    ),
    Question(
        "bad-value",
        "Which values are refused, and are they refused at once?",
        "What is accepted now and taken back later is known only through reports.",
        "Whole, negative and decimal numbers of at most 15 digits count; all else is refused.",
    ),
    Question(
        "same-lane",
        "What is answered when a customer's meter gets several requests at the same time?",
        "It decides how far one customer's usage can be sent in parallel.",
        "409 or 429 may come, so one request is in flight for each customer and meter.",
    ),
    Question(
        "stream-duplicate",
        "What becomes of a repeated identifier in a meter event stream, and may this key use one?",
        "A stream answers nothing for a single meter event.",
        "It cannot be told from one that counted, so streams are not used.",
    ),
    Question(
        "cancelled-identifier",
        "Can the identifier of a cancelled meter event be used again?",
        "If it can, a copy of the first request, late in the network, counts what was cancelled.",
        "It may be; what supersedes a meter event has an identifier of its own.",
    ),
    Question(
        "rejected-identifier",
        "Can the identifier of a meter event that was taken back be used again?",
        "If it cannot, the answer to a second try, a duplicate, looks like success.",
        "It cannot; what was taken back is redriven under another identifier.",
    ),
    Question(
        "adjustment-errors",
        "What is answered to cancelling an unknown meter event, or one twice?",
        "It decides whether a lost answer to a cancellation can be asked for again.",
        "Nothing: amounts are corrected by signed meter events, never by cancellation.",
    ),
    Question(
        "summary-lag",
        "How long after its answer is a meter event in the summaries?",
        "Doubt is settled by sums; one that is read too early is too small.",
        "Less than a day: a sum counts once it stood still for 24 hours.",
    ),
    Question(
        "summary-end",
        "Does a summary contain a meter event dated exactly at its end?",
        "Hours that overlap by a second would show an amount in both.",
        "It does not; meter events are dated strictly inside their window besides.",
    ),
    Question(
        "overwrite-order",
        "On a meter with an event time window, which of several meter events remains?",
        "If it is the one received last, sending a total again would heal any doubt.",
        "The one received last; until it is certain a catalogue may not use such a meter.",
    ),
    Question(
        "overwrite-parts",
        "Which part of such a window shows its amount when it is read in two parts?",
        "A billing anchor inside a window cuts it in two.",
        "Nothing is; a catalogue may not use such a meter.",
    ),
    Question(
        "refusal-cached",
        "Does an idempotency key keep the refusal of a bad parameter?",
        "A kept refusal is answered for a day, also after its cause is gone.",
        "It may: after a refusal was received the next try has another key.",
    ),
    Question(
        "report-names",
        "By what does an error report name a request: its idempotency key or its identifier?",
        "By the name the amount is found that has to be taken back.",
        "Either; the key contains the identifier.",
    ),
)
