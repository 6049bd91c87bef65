import pytest
from kubernetes.aio import client

from rightsizer_operator.cluster.client import api_client

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("host", "proxies", "stated", "used"),
    [
        ("https://10.96.0.1:443", {}, None, None),
        ("https://api.example:6443", {"https": PROXY}, None, PROXY),
        ("http://api.example:8001", {"https": PROXY}, None, None),
        ("https://10.96.0.1:443", {"https": PROXY, "no": "10.96.0.1,.svc"}, None, None),
        ("https://api.example:6443", {"https": PROXY}, "http://mine.example:1", "http://mine.example:1"),
    ],
    ids=["none", "for https", "for another scheme", "not for this host", "the kubeconfig's own wins"],
)
def test_the_proxy_comes_from_the_environment_unless_the_kubeconfig_sets_one(host, proxies, stated, used):
    configuration = client.Configuration(host=host, proxy=stated)
    configured = api_client(configuration, proxies=proxies).configuration
    assert (configured.proxy, configured.client_session_kwargs) == (used, {"trust_env": False})
