"""The dashboards as Grafana's JSON, by its own SDK. A development tool: the SDK is no dependency of users."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef

from rightsizer_telemetry.dashboard_types import Dashboard, Panel
from rightsizer_telemetry.panels import DASHBOARDS

__all__ = ["files"]

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT, _SMALL = 8, 4


def files() -> Iterator[tuple[str, str]]:
    """The name of each file and its text."""
    for one in DASHBOARDS:
        text = JSONEncoder(sort_keys=True, indent=1).encode(_dashboard(one))
        yield f"{one.uid}.json", json.dumps(json.loads(text), sort_keys=True, indent=1) + "\n"


def _dashboard(one: Dashboard) -> Any:
    source = dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source")
    page = (
        dashboard.Dashboard(one.title)
        .uid(one.uid)
        .description(one.description)
        .tags(["rightsizer"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .with_variable(source)
    )
    for variable in one.variables:
        page.with_variable(
            dashboard.QueryVariable(variable.name)
            .query(f"label_values({variable.metric}, {variable.name})")
            .datasource(_SOURCE)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    for panel in one.panels:
        page.with_panel(_panel(panel))
    return page.build()


_KINDS: Mapping[str, Callable[[], Any]] = {
    "timeseries": lambda: timeseries.Panel().legend(common.VizLegendOptions().show_legend(True)),
    "stat": stat.Panel,
    "table": table.Panel,
    "bargauge": bargauge.Panel,
}


def _panel(panel: Panel) -> Any:
    built = (
        _KINDS[panel.kind]()
        .title(panel.title)
        .description(panel.description)
        .unit(panel.unit)
        .datasource(_SOURCE)
        .span(panel.columns)
        .height(_SMALL if panel.kind == "stat" else _HEIGHT)
    )
    if panel.most is not None:
        built = built.min(0).max(panel.most)
    for ref, query in zip("ABCDEFGH", panel.queries, strict=False):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref)
        built = built.with_target(target if panel.kind == "timeseries" else target.instant())
    return built
