"""`rightsizer report` against a stand-in server, and how it finds one."""

import json
import sys

import pytest
from tests.cli.commands.conftest import StandIn
from tests.telemetry.test_discovery import OTHER, PLAIN, VM

from rightsizer_cli.main import execute

BUSY = {"rightsizer:gpu_busy:ratio": 86400.0, "requested": 86400.0}
DAY_OF_FOUR = {"workload_idle_gpus:count)": 240.0, "(rightsizer:workload_busy:ratio *": 720.0}
DAY_OF_FOUR |= {"((rightsizer:workload_gpus:count)": 960.0}


def test_a_server_that_knows_nothing_exits_with_4_and_prints_no_table(served, capsys):
    code = execute(["report", "--prometheus", served(StandIn({}))])
    out, err = capsys.readouterr()
    assert (code, out) == (4, "")
    assert err.startswith("unknown: the server has no GPU metrics of the last 24h")


def test_no_data_in_json_is_no_number(served, capsys):
    code = execute(["report", "--json", "--prometheus", served(StandIn({}))])
    assert code == 4
    assert set(json.loads(capsys.readouterr().out)) == {"noData", "remedy"}


def test_unmeasured_held_gpus_are_unknown(served, capsys):
    stand_in = StandIn({"requested": 86400.0}, {"workload_requested": 1920.0, "kube_pod_container": 1920.0})
    code = execute(["report", "--prometheus", served(stand_in)])
    first = capsys.readouterr().out.splitlines()[0]
    assert code == 0
    assert first == "idle GPU-hours unknown: 192.0 held, none of them measured, over 24h"


def test_a_window_longer_than_the_data_is_reported(served, capsys):
    stand_in = StandIn({"rightsizer:gpu_busy:ratio": 3 * 86400.0, "requested": 3 * 86400.0}, DAY_OF_FOUR)
    code = execute(["report", "--window", "30d", "--prometheus", served(stand_in)])
    assert code == 0
    assert "GPU metrics cover 3d of the 30d asked" in capsys.readouterr().out


def test_json_names_its_source(served, capsys):
    url = served(StandIn({"DCGM_FI_DEV_GPU_UTIL": 86400.0, "requested": 86400.0}))
    assert execute(["report", "--json", "--prometheus", url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["readFrom"], found["coveredS"]) == ("raw series", 86400)
    assert len(found["notes"]) == 2


def test_a_recorded_day_is_summed(served, capsys):
    assert execute(["report", "--json", "--prometheus", served(StandIn(BUSY, DAY_OF_FOUR))]) == 0
    (owner,) = json.loads(capsys.readouterr().out)["owners"]
    assert (owner["heldGPUHours"], owner["usedGPUHours"], owner["idleGPUHours"]) == (96, 72, 24)


KUBECTL = """#!{python}
import http.server, socketserver, sys, urllib.request
if "get" in sys.argv:
    print({listing!r})
    sys.exit({code})
path = next(word.partition("=")[2] for word in sys.argv if word.startswith("--unix-socket="))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        service, _, asked = self.path.partition("/proxy/")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        known = service == "/api/v1/namespaces/m/services/prom:80"
        answer = urllib.request.urlopen("{url}/" + asked, body).read() if known else b"no"
        self.send_response(200 if known else 503)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *_):
        pass
server = socketserver.UnixStreamServer(path, Handler)
print("Starting to serve on", path, flush=True)
server.serve_forever()
"""


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """A stand-in kubectl, alone on the PATH: it lists these services and proxies to one of them."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("RIGHTSIZER_PROMETHEUS", raising=False)

    def install(*services, url="", code=0):
        listing = json.dumps({"items": services})
        program = tmp_path / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable, listing=listing, url=url, code=code))
        program.chmod(0o755)

    return install


def test_the_first_reachable_service_is_queried_through_kubectl(kubectl, served, capsys):
    kubectl(VM, PLAIN, url=served(StandIn(BUSY, DAY_OF_FOUR)))
    code = execute(["report"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "Prometheus: service m/prom:80\n")
    assert out.startswith("24.0 GPU-hours idle (25% of those measured)")


@pytest.mark.parametrize(
    ("services", "code", "words"),
    [([OTHER], 0, "no service is labelled as one"), ([VM], 0, "m/vm:8481: HTTP 503"), ([], 1, "no message")],
    ids=["none", "silent", "no cluster"],
)
def test_a_cluster_without_a_server_lists_the_attempts(kubectl, capsys, services, code, words):
    kubectl(*services, code=code)
    assert execute(["report"]) == 2
    err = capsys.readouterr().err
    assert "--prometheus: give its address" in err
    assert words in err


@pytest.mark.usefixtures("kubectl")
def test_without_kubectl_the_address_must_be_given(capsys):
    assert execute(["report"]) == 2
    assert "no kubectl on the PATH" in capsys.readouterr().err
