import subprocess

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly]

CHART = {
    "Chart.yaml": "{apiVersion: v2, name: note, version: 0.1.0}",
    "templates/note.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data: {text: "{{ .Values.text }}"}
""",
}


@pytest.fixture
def chart(tmp_path):
    for name, content in CHART.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def test_helm_installs_and_uninstalls_a_chart(cluster, namespace, chart):
    helm = [cluster.control("tool", "helm").strip(), f"--kubeconfig={cluster.kubeconfig}", "-n", namespace]
    subprocess.run([*helm, "install", "hello", chart, "--wait", "--set", "text=hi"], check=True)
    assert cluster.api.get("configmap", "hello", namespace=namespace)["data"] == {"text": "hi"}
    subprocess.run([*helm, "uninstall", "hello", "--wait"], check=True)
    with pytest.raises(RuntimeError, match="not found"):
        cluster.api.get("configmap", "hello", namespace=namespace)
