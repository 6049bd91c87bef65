"""Which of a cluster's services may be its Prometheus."""

from rightsizer_telemetry.discovery import candidates


def service(name, labels, *ports):
    listed = [dict(zip(("name", "port"), port, strict=True)) for port in ports]
    return {"metadata": {"namespace": "m", "name": name, "labels": labels}, "spec": {"ports": listed}}


VM = service("vm", {"app.kubernetes.io/name": "vmselect"}, ("http", 8481))
THANOS = service("thanos", {"app.kubernetes.io/name": "thanos-query"}, ("grpc", 10901), ("web", 9091))
PLAIN = service("prom", {"app": "prometheus", "component": "server", "x": "y"}, ("any", 80))
OTHER = service("shop", {"app": "shop"}, ("http", 80))


def test_services_are_tried_in_the_order_of_krr():
    found = candidates([PLAIN, OTHER, THANOS, VM])
    assert [one.name for one in found] == ["vm", "thanos", "prom"]
    assert found[0].inside == "http://vm.m.svc:8481/select/0/prometheus"
    assert found[1].port == 9091


def test_a_service_without_labels_or_ports_is_no_candidate():
    assert candidates([service("none", {}, ("http", 80)), service("x", {"app": "prometheus-server"})]) == ()
