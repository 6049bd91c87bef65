"""The tables of plans in a cluster."""

from rightsizer_cli.output.console import show
from rightsizer_cli.output.plan_tables import detail_page, plans_table


def test_tables_hold_what_the_status_knows(plan, capsys):
    show(plans_table([plan], namespaces=True), *detail_page(plan))
    text = capsys.readouterr().out
    assert "nlp" in text
    assert "25%" in text
    assert "Running" in text
