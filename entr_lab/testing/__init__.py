"""What a rule's author runs: the contract of keep rules, and the batches that it is checked on.

    from entr_lab.testing import check_keep_rule

    def test_my_rule() -> None:
        check_keep_rule(MyRule(threshold=0.3))

Nothing but torch is needed, so the contract runs in any project.
"""

from entr_lab.testing.batches import adversarial_batch
from entr_lab.testing.contract import check_keep_rule

__all__ = ["adversarial_batch", "check_keep_rule"]
