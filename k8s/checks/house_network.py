"""NetworkPolicies of an overlay: closed unless said otherwise, open where our pods need it; and ports that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from .manifests import (
    LEDGER,
    RAY,
    Manifest,
    Platform,
    Pod,
    all_containers,
    of_kind,
    pods_of,
    selects,
    subject,
    whole,
)

METADATA = ("169.254.169.254", "fd00:ec2::254")
KUBERNETES = ip_address("10.96.0.1")
"""The address that Kubernetes' API mostly has inside a cluster."""
DNS, HTTPS, POSTGRES = 53, 443, 5432
STORE = "c2b-ray.io/object-store"
CLUSTER_API_ONLY = "c2b-ray.io/cluster-api"
Rule = Mapping[str, Any]


def network(platform: Platform) -> Iterator[tuple[str, str]]:
    """Default deny; DNS for all, the object store for our pods, the database for those with the ledger; no metadata."""
    if not whole(platform):
        return
    policies = of_kind(platform, "NetworkPolicy")
    for pod in pods_of(platform):
        mine = [policy["spec"] for policy in policies if selects(policy["spec"].get("podSelector"), pod.labels)]
        for message in _faults(pod, mine):
            yield "NetworkPolicy", f"{pod.kind} {pod.location}: {message}"


def _faults(pod: Pod, policies: list[Manifest]) -> Iterator[str]:
    if {side for policy in policies for side in policy.get("policyTypes") or []} != {"Ingress", "Egress"}:
        yield "no policy closes it on both sides"
    out = [rule for policy in policies for rule in policy.get("egress") or []]
    into = [rule for policy in policies for rule in policy.get("ingress") or []]
    if not any(_has_port(rule, DNS, "UDP") and not _is_among_ours(rule) for rule in out):
        yield f"no policy lets it out to port {DNS}"
    if CLUSTER_API_ONLY not in pod.labels and not any(_is_to_store(rule) for rule in out):
        yield f"no policy lets it out to port {HTTPS} or to the object store"
    if LEDGER in pod.labels and not any(_is_to_database(rule) for rule in out):
        yield f"no policy lets it out to port {POSTGRES} or to the database"
    if any(_reaches_metadata(rule) for rule in out):
        yield f"may reach the node's metadata at {' or '.join(METADATA)}"
    if any(not rule.get("from") for rule in into):
        yield "anyone may reach it: a rule of ingress has no `from`"
    if RAY in pod.labels and any(_is_for_everyone(peer) for rule in into for peer in rule.get("from") or []):
        yield "everyone, or every namespace, may reach a node of Ray, and run code on it"
    if pod.labels.get(CLUSTER_API_ONLY) == "true" and not any(_is_to_kubernetes(rule) for rule in out):
        yield "no policy lets it out to Kubernetes' API"
    if pod.annotations.get("prometheus.io/scrape") == "true":
        port = int(pod.annotations.get("prometheus.io/port", 80))
        if not any(_has_port(rule, port) or _has_named(rule, pod, port) for rule in into):
            yield f"prometheus.io/scrape is true, and no policy lets anybody in to port {port}"
    if RAY in pod.labels and not any(_names(rule, "to", RAY) for rule in out):
        yield "may not reach the other nodes of Ray"
    if RAY in pod.labels and not any(_names(rule, "from", RAY) for rule in into):
        yield "the other nodes of Ray may not reach it"


def _has_port(rule: Rule, port: int, protocol: str = "TCP") -> bool:
    ports = rule.get("ports")
    return not ports or any(entry.get("protocol", "TCP") == protocol and _within(entry, port) for entry in ports)


def _has_named(rule: Rule, pod: Pod, port: int) -> bool:
    """Whether a rule names a port of the pod by its name."""
    entries = [entry for container in all_containers(pod.spec) for entry in container.get("ports") or []]
    names = {entry.get("name") for entry in entries if entry.get("containerPort") == port} - {None}
    return any(entry.get("port") in names for entry in rule.get("ports") or [])


def _is_for_everyone(peer: Rule) -> bool:
    """Whether a peer is every address, or every pod of every namespace."""
    if "ipBlock" in peer:
        return ip_network(peer["ipBlock"]["cidr"]).prefixlen == 0
    spaces, pods = peer.get("namespaceSelector"), peer.get("podSelector")
    return spaces is not None and not spaces and not pods


def _is_to_kubernetes(rule: Rule) -> bool:
    """Kubernetes' API has an address inside the cluster, or one that somebody chose."""
    blocks = [peer["ipBlock"] for peer in rule.get("to") or [] if "ipBlock" in peer]
    inside = [
        block for block in blocks if not any(KUBERNETES in ip_network(cidr) for cidr in block.get("except") or [])
    ]
    return bool(inside) and (_has_port(rule, HTTPS) or _has_port(rule, 6443) or all(_chosen(block) for block in inside))


def _chosen(block: Rule) -> bool:
    return ip_network(block["cidr"]).prefixlen > 0


def _within(entry: Rule, port: int) -> bool:
    first = entry.get("port")
    return first is None or (isinstance(first, int) and first <= port <= entry.get("endPort", first))


def _is_to_store(rule: Rule) -> bool:
    """One inside the cluster has its label, one outside addresses; either has whichever port its store listens on."""
    return _names(rule, "to", STORE) or (_has_port(rule, HTTPS) and not _is_among_ours(rule)) or _is_to_address(rule)


def _is_to_database(rule: Rule) -> bool:
    return not _is_among_ours(rule) and (_has_port(rule, POSTGRES) or _is_to_address(rule))


def _is_among_ours(rule: Rule) -> bool:
    return _names(rule, "to", RAY) or _names(rule, "to", STORE)


def _is_to_address(rule: Rule) -> bool:
    """Whether it is for addresses that someone chose: a store or a pooler there has a port of its own."""
    blocks = [peer["ipBlock"]["cidr"] for peer in rule.get("to") or [] if "ipBlock" in peer]
    return any(ip_network(cidr).prefixlen > 0 for cidr in blocks)


def _reaches_metadata(rule: Rule) -> bool:
    if not rule.get("to"):
        return True
    for block in filter(None, (peer.get("ipBlock") for peer in rule["to"])):
        for address in map(ip_address, METADATA):
            spared = any(address in ip_network(cidr) for cidr in block.get("except") or [])
            if address in ip_network(block["cidr"]) and not spared:
                return True
    return False


def _names(rule: Rule, side: str, label: str) -> bool:
    return any(((peer.get("podSelector") or {}).get("matchLabels") or {}).get(label) for peer in rule.get(side) or [])


def ports(platform: Platform) -> Iterator[tuple[str, str]]:
    """A port that a probe, a Service or a policy names is one on which a container listens."""
    everything = pods_of(platform)
    for pod in everything:
        for container in all_containers(pod.spec):
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                for port in _asked(container.get(kind) or {}):
                    if port not in _open([container]):
                        yield f"{pod.kind} {pod.location}", f"{kind} asks port {port} of {container['name']}"
    for service in of_kind(platform, "Service"):
        there = _behind({"matchLabels": service["spec"].get("selector")}, everything)
        for entry in service["spec"].get("ports") or []:
            if there and (port := entry.get("targetPort", entry.get("port"))) not in there:
                yield subject(service), f"targetPort {port} is none of its pods' {sorted(map(str, there))}"
            elif there and whole(platform) and not _let_in(platform, service, everything, port):
                yield subject(service), f"no NetworkPolicy lets anybody in to port {port} of its pods"
    for policy in of_kind(platform, "NetworkPolicy"):
        there = _behind(policy["spec"].get("podSelector"), everything)
        for rule in policy["spec"].get("ingress") or []:
            for entry in rule.get("ports") or []:
                if "port" in entry and "endPort" not in entry and entry["port"] not in there:
                    yield subject(policy), f"lets in to port {entry['port']}, on which none of its pods listens"


def _asked(probe: Rule) -> list[str | int]:
    return [probe[how]["port"] for how in ("httpGet", "tcpSocket", "grpc") if how in probe]


def _open(containers: list[Manifest]) -> set[str | int]:
    """Names and numbers of the ports of containers."""
    entries = [port for container in containers for port in container.get("ports") or []]
    return {entry[key] for entry in entries for key in ("name", "containerPort") if key in entry}


def _behind(selector: Manifest | None, everything: list[Pod]) -> set[str | int]:
    taken = [pod for pod in everything if selects(selector, pod.labels)]
    return {port for pod in taken for port in _open(all_containers(pod.spec))}


def _let_in(platform: Platform, service: Manifest, everything: list[Pod], port: str | int) -> bool:
    for pod in everything:
        if not selects({"matchLabels": service["spec"].get("selector")}, pod.labels):
            continue
        entries = [entry for container in all_containers(pod.spec) for entry in container.get("ports") or []]
        meant = {entry["containerPort"] for entry in entries if port in (entry.get("name"), entry["containerPort"])}
        names = {port, *(entry.get("name") for entry in entries if entry["containerPort"] in meant)} - {None}
        for policy in of_kind(platform, "NetworkPolicy"):
            if not selects(policy["spec"].get("podSelector"), pod.labels):
                continue
            for rule in policy["spec"].get("ingress") or []:
                if any(_has_port(rule, number) for number in meant):
                    return True
                if any(entry.get("port") in names for entry in rule.get("ports") or []):
                    return True
    return False
