"""What an item of five rounds costs."""

from bench.revision_cost import AIM, PRICES, by_sections, by_whole_drafts


def test_sections_and_numbered_points_save_a_quarter_of_the_cost_of_five_rounds() -> None:
    old, new = by_whole_drafts(), by_sections()
    assert new.sent and new.written
    assert all(new.cost(model) <= (1 - AIM) * old.cost(model) for model in PRICES)
