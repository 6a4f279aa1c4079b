"""The feed numbers its prompts by their samples, and its cursor is all that a resume needs."""

from entr_lab.real.environments.base import Sample
from entr_lab.real.prompt_feed import PromptFeed


class Samples:
    def sample(self, index: int) -> Sample:
        return Sample(f"id-{index}", "text", source=f"source-{index % 2}")


def test_prompts_are_numbered_by_their_samples_and_go_on():
    feed = PromptFeed(Samples())

    first, second = feed.next(3), feed.next(2)

    assert [prompt.id for prompt in (*first, *second)] == ["0", "1", "2", "3", "4"]
    assert [prompt.source for prompt in first] == ["source-0", "source-1", "source-0"]
    assert feed.cursor == 5


def test_a_feed_from_a_cursor_goes_on_where_the_other_stopped():
    feed = PromptFeed(Samples())
    feed.next(4)

    assert PromptFeed(Samples(), cursor=feed.cursor).next(2) == feed.next(2)
