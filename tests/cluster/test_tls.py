"""Three broker processes that talk to each other by mutual TLS: they serve, and fail over."""

from dataclasses import replace
from pathlib import Path

from millstream.security.settings import Peers
from millstream.server.system.dev_certificates import make_dev_certificates
from millstream.testing.cluster import ClusterProcesses
from tests.cluster.test_three_nodes import CONFIG, Sender, consumer, create, leader_of, read


def test_a_cluster_with_certificates_serves_and_fails_over(tmp_path: Path) -> None:
    files = tmp_path / "tls"
    make_dev_certificates(files, nodes=[1, 2, 3])
    cluster = ClusterProcesses(CONFIG, tmp_path)
    for number, node in cluster.nodes.items():
        peers = Peers(
            certificate=str(files / f"node-{number}.pem"),
            key=str(files / f"node-{number}.key"),
            ca=str(files / "ca.pem"),
        )
        node.config = replace(node.config, peers=peers)
    try:
        cluster.start()
        create(cluster, "orders", partitions=2)
        sender = Sender(cluster)
        sender.send("orders", [b"before-%d" % at for at in range(50)])
        leader = leader_of(cluster, "orders")

        cluster.kill(leader)
        sender.send("orders", [b"during-%d" % at for at in range(50)])
        cluster.start_node(leader)

        reader = consumer(cluster, "readers")
        reader.subscribe(["orders"])
        values = read(reader, 100)
        reader.close()
        assert sorted(values) == sorted(sender.acknowledged)
        assert all("tls=mutual" in cluster.log(number) for number in cluster.nodes)
    finally:
        cluster.stop()
