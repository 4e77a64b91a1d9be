"""What the linter knows: a rule for each option it accepts, a reason for each it refuses.

A name that is in neither table is unknown, and unknown is refused: Connect passes misspelt options,
and some real ones of Debezium, through its validation without a word.
"""

from connectors.rules.capture import CAPTURE_RULES
from connectors.rules.delivery import DELIVERY_RULES
from connectors.rules.forbidden import FORBIDDEN
from connectors.rules.kinds import Forbidden, Rule

RULES: tuple[Rule, ...] = (*CAPTURE_RULES, *DELIVERY_RULES)

__all__ = ["FORBIDDEN", "RULES", "Forbidden", "Rule"]
