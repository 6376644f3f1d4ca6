"""Makes a data directory that of a new node of a cluster, by a token.

Asks a node of the cluster over its Kafka listener, proves the secret of the token, and writes the
membership. The node itself starts afterwards as any other.
"""

import os
import socket
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from millstream.cli.connection import TIMEOUT_S, with_secrets
from millstream.cli.render import Refused
from millstream.config import Config
from millstream.control.commands import NodeEncryption
from millstream.control.tokens import (
    NONCE_BYTES,
    Admission,
    JoinRequest,
    Token,
    decode_token,
    hash_of,
    name_of,
    proof_of,
    unseal_key,
)
from millstream.engine.cluster.members import join_address, peer_listen, reachable, split_address
from millstream.model import CLUSTER_LEVELS
from millstream.server.system.secrets import SystemSecrets
from millstream.storage.files.directory import META, ROOT_KEY
from millstream.storage.files.disk import DiskFiles
from millstream.storage.files.membership import (
    MEMBERSHIP,
    Membership,
    read_membership,
    write_cluster_key,
    write_membership,
)
from millstream.storage.sealing.root import read_root

PRIVATE_UMASK = 0o077


def join(token_text: str, config: Config, client_settings: dict[str, str]) -> Membership:
    """Join the cluster of the token; raise `Refused` if the data directory is another node's."""
    token = decode_token(token_text)
    files = DiskFiles(Path(config.data_dir))
    _check_empty(files, config.data_dir, token)
    listen = with_free_port(peer_listen(config))
    address = config.peer_address or reachable(listen, "peer_address")
    directory_id, secret_hash = uuid4(), hash_of(token.secret)
    request = JoinRequest(
        directory_id=str(directory_id),
        peer=address,
        nonce=os.urandom(NONCE_BYTES),
        cluster_id=token.cluster_id,
        encryption=_encryption(config),
        levels=CLUSTER_LEVELS,
    )
    admission = _ask(token, request, client_settings)
    key = unseal_key(secret_hash, request.nonce, admission.sealed_key)
    membership = Membership(
        node_id=admission.node_id,
        cluster_id=admission.cluster_id,
        directory_id=directory_id,
        generation=admission.generation,
        listen=listen,
        address=address,
        founders=admission.founders,
        peers=admission.peers,
    )
    os.umask(PRIVATE_UMASK)
    files.make_directory("")
    write_cluster_key(files, key)
    write_membership(files, membership)
    return membership


def has_joined(config: Config) -> bool:
    """Whether the data directory is a node's of some cluster already."""
    if config.storage == "memory":
        raise Refused("a node in memory forgets its cluster: join with storage = disk")
    return read_membership(DiskFiles(Path(config.data_dir)), config.data_dir) is not None


def with_free_port(listen: str) -> str:
    """`listen` with a free port in the place of 0: other nodes are told before this one starts."""
    host, port = split_address(listen)
    if port:
        return listen
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return join_address(host, probe.getsockname()[1])


def _check_empty(files: DiskFiles, path: str, token: Token) -> None:
    membership = read_membership(files, path)
    if membership is not None:
        same = "this" if membership.cluster_id == token.cluster_id else "another"
        raise Refused(
            f"{path} belongs to node {membership.node_id} of {same} cluster already: start it with "
            f"`millstream serve --data-dir {path}`, or join with an empty data_dir"
        )
    others = set(files.list("")) - {"lock", "lost+found", "tls", ROOT_KEY, MEMBERSHIP}
    if others:
        whose = "a node of its own" if META in others else "something else"
        raise Refused(f"{path} belongs to {whose}: join with an empty or new data_dir")


def _encryption(config: Config) -> NodeEncryption:
    """How this node will store records: the cluster may refuse it before anything is written."""
    settings = config.encryption
    if not settings.is_on:
        return NodeEncryption(mode="off")
    root = read_root(settings.key_name, settings.key, SystemSecrets())
    return NodeEncryption(mode=settings.mode, key_name=root.name, check=root.check)


def _ask(token: Token, request: JoinRequest, client_settings: dict[str, str]) -> Admission:
    from millstream.client import connect

    secret_hash = hash_of(token.secret)
    settings: dict[str, Any] = with_secrets(client_settings)
    with connect(",".join(token.addresses), timeout_s=TIMEOUT_S, **settings) as client:
        answer = client.cluster.join(
            name_of(secret_hash), msgspec.json.encode(request), proof_of(secret_hash, request)
        )
    return msgspec.json.decode(answer, type=Admission)
