"""The dashboards as Grafana's JSON, by its own SDK. A development tool: the SDK is no dependency of users."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as styles
from grafana_foundation_sdk.models import dashboard as models

from rightsizer_telemetry.alerts import runbooks
from rightsizer_telemetry.dashboards.fleet import FLEET, WASTE
from rightsizer_telemetry.dashboards.owner import NAMESPACE, PLANS
from rightsizer_telemetry.dashboards.parts import NEUTRAL, Dashboard, Panel, Variable
from rightsizer_telemetry.dashboards.programs import OPERATOR, SLURM

DASHBOARDS = (FLEET, NAMESPACE, PLANS, WASTE, SLURM, OPERATOR)
_TAG = "rightsizer"
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT, _SMALL = 8, 4
_CLUSTER = Variable(
    name="cluster",
    selection='{__name__=~"rightsizer:workload_gpus:count|rightsizer_plans|rightsizer_slurm_jobs"}',
)


def files() -> Iterator[tuple[str, str]]:
    """The name of each file and its text."""
    for one in DASHBOARDS:
        text = JSONEncoder(sort_keys=True, indent=1).encode(_dashboard(one))
        yield f"{one.uid}.json", json.dumps(json.loads(text), sort_keys=True, indent=1) + "\n"


def _dashboard(one: Dashboard) -> Any:
    source = dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source")
    others = (
        dashboard.DashboardLink("rightsizer")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([_TAG])
        .as_dropdown(True)
        .keep_time(True)
        .include_vars(True)
    )
    page = (
        dashboard.Dashboard(one.title)
        .uid(one.uid)
        .description(one.description)
        .tags([_TAG])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .link(others)
        .with_variable(source)
    )
    for variable in (_CLUSTER, *one.variables):
        page.with_variable(_variable(variable))
    for number, panel in enumerate(one.panels, 1):
        page.with_panel(_panel(panel, one.uid).id(number))
    return page.build()


def _variable(variable: Variable) -> Any:
    return (
        dashboard.QueryVariable(variable.name)
        .query(f"label_values({variable.selection}, {variable.name})")
        .datasource(_SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _curves() -> Any:
    style = common.GraphThresholdsStyleConfig().mode(styles.GraphTresholdsStyleMode.DASHED)
    return timeseries.Panel().legend(common.VizLegendOptions().show_legend(True)).thresholds_style(style)


def _number() -> Any:
    return stat.Panel().reduce_options(_last()).graph_mode(styles.BigValueGraphMode.NONE)


def _bars() -> Any:
    horizontal = styles.VizOrientation.HORIZONTAL
    return bargauge.Panel().reduce_options(_last()).orientation(horizontal).show_unfilled(True)


def _last() -> Any:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)


_KINDS: Mapping[str, Callable[[], Any]] = {"timeseries": _curves, "stat": _number, "bargauge": _bars}


def _panel(panel: Panel, page: str) -> Any:
    steps = [models.Threshold(value=value, color=color) for value, color in panel.limits]
    built = (
        _KINDS[panel.kind]()
        .title(panel.title)
        .description(panel.description)
        .unit(panel.unit)
        .no_value("no data")
        .datasource(_SOURCE)
        .span(panel.columns)
        .height(_SMALL if panel.kind == "stat" else _HEIGHT)
        .thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .data_links(_links(panel, page))
    )
    if panel.kind == "timeseries" and panel.limits == NEUTRAL:
        built = built.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(styles.GraphTresholdsStyleMode.OFF)
        )
    if panel.most is not None:
        built = built.min(0).max(panel.most)
    for ref, query in zip("ABCDEFGH", panel.queries, strict=False):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref)
        built = built.with_target(target if panel.kind == "timeseries" else target.instant())
    return built


def _links(panel: Panel, page: str) -> list[Any]:
    """The link of a series: to its plan, its owner or its alert's runbook, as its labels allow."""
    legends = "".join(query.legend for query in panel.queries)
    namespace = "var-namespace=${__field.labels.namespace}"
    targets = (
        ("alertname", "Runbook", f"{runbooks()}/${{__field.labels.alertname}}.md"),
        ("plan", PLANS.title, _page(PLANS.uid, namespace, "var-plan=${__field.labels.plan}")),
        ("namespace", NAMESPACE.title, _page(NAMESPACE.uid, namespace)),
    )
    fitting = [
        dashboard.DashboardLink(title).url(url)
        for label, title, url in targets
        if f"{{{{{label}}}}}" in legends and f"/{page}?" not in url
    ]
    return fitting[:1]


def _page(uid: str, *variables: str) -> str:
    return f"/d/{uid}?{'&'.join(('${cluster:queryparam}', *variables, '${__url_time_range}'))}"
