# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""Lint and render the files of deploy/; `scripts/deployments` runs it where its packages are."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import yaml

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
CHART = DEPLOY / "helm" / "mcp-toolset"
VERSIONS = ("1.28", "1.30", "1.33", kubernetes_validate.latest_version())
WARNING = 2

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one replica": {"replicaCount": 1, "secretName": ""},
    "everything": {
        "image": {"repository": "registry.example/mcp-toolset", "digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "registry"}],
        "allowHosts": ["tools.example.com"],
        "allowOrigins": ["https://app.example.com"],
        "extraArgs": ["--audit", "/data/audit.jsonl"],
        "shared": "redis://valkey:6379",
        "env": [{"name": "LOG_LEVEL", "value": "info"}],
        "ingress": {
            "enabled": True,
            "host": "tools.example.com",
            "className": "nginx",
            "tlsSecretName": "tls",
            "annotations": {"a/b": "c"},
        },
        "podAnnotations": {"a/b": "c"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
}
REFUSED: dict[str, dict[str, Any]] = {
    "an ingress without a host": {"ingress": {"enabled": True}},
    "a configuration without servers": {"config": "{}"},
    "a digest that is none": {"image": {"repository": "a", "digest": "latest"}},
}


def recipe() -> Iterator[str]:
    """The findings of hadolint about the container recipe."""
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, DEPLOY / "Containerfile"], capture_output=True, text=True, check=False)
    yield from (done.stdout + done.stderr).splitlines()


def proxy() -> Iterator[str]:
    """The findings of HAProxy about its configuration."""
    command = ["haproxy", "-c", "-f", str(DEPLOY / "compose" / "haproxy.cfg")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        yield from done.stderr.splitlines()


def compose() -> Iterator[str]:
    """Services of the Compose file that name what it does not have."""
    said = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    for name, service in said["services"].items():
        yield from (
            f"{name}: no service {one}"
            for one in service.get("depends_on", ())
            if one not in said["services"]
        )
        mounts = (one.partition(":")[0] for one in service.get("volumes", ()))
        yield from (
            f"{name}: no volume or file {one}"
            for one in mounts
            if one not in said["volumes"] and not (DEPLOY / "compose" / one).exists()
        )


def chart(values: dict[str, Any]) -> Iterator[str]:
    """The findings of Helm about the chart with these values, and of Kubernetes' schemas about its output."""
    found = helm_python.lint(str(CHART), values, strict=True, kube_version="v1.30.0")
    yield from (one["error"] for one in found["messages"] if one["severity"] >= WARNING)
    for path, text in rendered(values).items():
        for document in filter(None, yaml.safe_load_all(text) if path.endswith(".yaml") else ()):
            yield from (fault for version in VERSIONS for fault in against_schema(document, version))


def rendered(values: dict[str, Any]) -> dict[str, str]:
    """The manifests, by template."""
    with helm_python.Chart.load(str(CHART)) as loaded:
        return loaded.render(values, name="tools", namespace="default")


def against_schema(document: dict[str, Any], version: str) -> Iterator[str]:
    """The objects that a version of Kubernetes would refuse."""
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as fault:
        yield f"{document['kind']}, Kubernetes {version}: {fault}".splitlines()[0]


def refused(values: dict[str, Any]) -> Iterator[str]:
    """Values that the chart's schema has to refuse."""
    found = helm_python.lint(str(CHART), values, strict=True)
    if not any(one["severity"] > WARNING for one in found["messages"]):
        yield "the values were accepted: " + json.dumps(values)


def main() -> int:
    """Run all; returns the exit code."""
    checks = {"Containerfile: hadolint": recipe(), "compose.yaml: names": compose()}
    if shutil.which("haproxy"):
        checks["haproxy.cfg: haproxy -c"] = proxy()
    checks |= {f"chart: {name}": chart(values) for name, values in VALUES.items()}
    checks |= {f"chart refuses {name}": refused(values) for name, values in REFUSED.items()}
    failed = False
    for name, faults in checks.items():
        said = list(faults)
        failed = failed or bool(said)
        print(f"{name:42} {'failed' if said else 'well'}")
        for line in said:
            print(f"    {line}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
