"""Counts Kubernetes' validation rules and the test cases here, per kind: the table in docs/compatibility.md.

    git clone --depth 1 --branch v1.36.0 https://github.com/kubernetes/kubernetes
    cargo test -p api-validation --test rules -- --nocapture > cases.txt
    python3 tests/lib/validation_rules.py kubernetes cases.txt

A rule is a call that makes an error (`field.Invalid` and its like) in a function that the kind's
functions `Validate<Kind>`, `Validate<Kind>Update` and so on reach. Errors of the server itself
(`field.InternalError`) are no rules. Rules of metadata are counted once for all kinds, and those of
a pod template with PodTemplate only. MISSING lists the rules that are not here; it was made by reading.
"""
import collections
import glob
import os
import re
import sys

ERROR = re.compile(r"field\.(Invalid|Required|Forbidden|NotSupported|Duplicate|TooLong|TooMany|NotFound|TypeInvalid)\(")
APIS = "k8s.io/kubernetes/pkg/apis/"
CORE = APIS + "core/validation"
META = "k8s.io/apimachinery/pkg/api/validation"
LIBRARIES = (META[7:], "apimachinery/pkg/apis/meta/v1/validation",
             "apiextensions-apiserver/pkg/apis/apiextensions/validation",
             "kube-aggregator/pkg/apis/apiregistration/validation")

# Kinds of a package, and suffixes of their functions if they are not the usual ones.
USUAL = ("", "Create", "Update", "StatusUpdate")
KINDS = {
    "core": {
        "Pod": ("Create", "Update", "StatusUpdate", "EphemeralContainersUpdate", "Resize", "Binding"),
        "PodTemplate": USUAL, "ReplicationController": USUAL, "Service": USUAL, "Endpoints": USUAL, "ConfigMap": USUAL,
        "Secret": USUAL, "ServiceAccount": USUAL, "Namespace": USUAL + ("FinalizeUpdate",), "Node": USUAL, "Event": USUAL,
        "LimitRange": USUAL, "ResourceQuota": USUAL, "PersistentVolume": USUAL, "PersistentVolumeClaim": USUAL,
    },
    "apps": dict.fromkeys(("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "ControllerRevision"), USUAL),
    "batch": {"Job": USUAL + ("UpdateStatus",), "CronJob": USUAL},
    "autoscaling": {"HorizontalPodAutoscaler": USUAL, "Scale": USUAL},
    "policy": {"PodDisruptionBudget": USUAL},
    "networking": dict.fromkeys(("Ingress", "IngressClass", "NetworkPolicy", "IPAddress", "ServiceCIDR"), USUAL),
    "discovery": {"EndpointSlice": USUAL},
    "rbac": dict.fromkeys(("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"), USUAL),
    "coordination": {"Lease": USUAL},
    "node": {"RuntimeClass": USUAL},
    "scheduling": {"PriorityClass": USUAL},
    "certificates": {"CertificateSigningRequest": USUAL + ("ApprovalUpdate",)},
    "storage": dict.fromkeys(("StorageClass", "VolumeAttachment", "CSINode", "CSIDriver", "CSIStorageCapacity",
                              "VolumeAttributesClass"), USUAL),
    "flowcontrol": dict.fromkeys(("FlowSchema", "PriorityLevelConfiguration"), USUAL),
    "admissionregistration": dict.fromkeys((
        "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"), USUAL),
    "resource": dict.fromkeys(("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"), USUAL),
    "apiextensions": {"CustomResourceDefinition": USUAL},
    "apiregistration": {"APIService": USUAL + ("Status",)},
    "authorization": dict.fromkeys(("SubjectAccessReview", "SelfSubjectAccessReview", "LocalSubjectAccessReview"), USUAL),
    "authentication": {"TokenRequest": USUAL},
}
MORE_ROOTS = {"CustomResourceDefinition": ("ValidateUpdateCustomResourceDefinitionStatus",)}

# Rules that are not here: their number and the reason.
MISSING = {
    "Pod": (5, "status of image volumes (3), privileged containers on a server that forbids them (2)"),
    "PodTemplate": (2, "privileged containers on a server that forbids them"),
}

# Rules that no object of a served version can break, which are not counted.
UNREACHABLE = {
    "CustomResourceDefinition": (7, "fields of the whole definition in v1beta1"),
    "DaemonSet": (2, "the template's generation, which the server sets"),
    "EndpointSlice": (1, "a key of v1beta1"),
    "PersistentVolume": (1, "a feature gate that is locked"),
    "PersistentVolumeClaim": (1, "a feature gate that is locked"),
    "ValidatingAdmissionPolicy": (1, "an empty message with line breaks"),
}


def load(package, files):
    """Returns the bodies of a package's functions, with the package's imports."""
    functions = {}
    for file in files:
        if file.endswith("_test.go") or "/zz_" in file:
            continue
        with open(file) as f:
            source = f.read()
        block = re.search(r"^import \((.*?)^\)", source, re.S | re.M)
        imports = {}
        for line in (block.group(1) if block else "").split("\n"):
            found = re.match(r'\s*(?:(\w+)\s+)?"([^"]+)"', line)
            if found:
                imports[found.group(1) or found.group(2).split("/")[-1]] = found.group(2)
        for found in re.finditer(r"^func (?:\([^)]*\) )?(\w+)[\[(]", source, re.M):
            end = source.find("\n}\n", found.start())
            lines = source[found.start():end if end > 0 else len(source)].split("\n")
            body = "\n".join(line for line in lines if not line.lstrip().startswith("//"))
            functions[package, found.group(1)] = (body, imports)
        # A variable that stands for a function of another package.
        for found in re.finditer(r"^var (\w+) = ((?:\w+\.)?\w+)$", source, re.M):
            functions[package, found.group(1)] = (found.group(2) + "(", imports)
    return functions


def reach(functions, roots, without=frozenset()):
    """Returns all functions that the roots name, directly or not."""
    seen, todo = set(), list(roots)
    while todo:
        name = todo.pop()
        if name in seen or name in without or name not in functions:
            continue
        seen.add(name)
        body, imports = functions[name]
        body = body.split("{", 1)[-1] if body.startswith("func") else body
        for package, word in re.findall(r"(?:\b(\w+)\.)?\b(\w+)\b", body):
            if not package:
                todo.append((name[0], word))
            elif package in imports:
                todo.append((imports[package], word))
    return seen


def main(tree, cases):
    functions = {}
    for folder in glob.glob(os.path.join(tree, "pkg/apis/*/validation")):
        functions |= load(f"{APIS}{folder.split('/')[-2]}/validation", glob.glob(folder + "/*.go"))
    for library in LIBRARIES:
        functions |= load("k8s.io/" + library, glob.glob(os.path.join(tree, "staging/src/k8s.io", library, "*.go")))
    with open(cases) as f:
        counts = collections.Counter(line.split("/")[-1].strip() for line in re.findall(r"\bcase ([\w.]*/\w+)$", f.read(), re.M))

    def count(roots, without=frozenset()):
        return sum(len(ERROR.findall(functions[name][0])) for name in reach(functions, roots, without))

    words = ("ObjectMeta", "ObjectMetaUpdate", "ObjectMetaWithOpts", "ObjectMetaAccessor", "ObjectMetaAccessorUpdate")
    metadata = {(package, "Validate" + word) for package in (CORE, META) for word in words}
    template = {(CORE, "ValidatePodTemplateSpec")}
    print(f"| kind | rules of Kubernetes | here | share | cases |\n|---|---|---|---|---|\n| metadata of every kind | {count(metadata)} | {count(metadata)} | 100 % | |")
    for group, kinds in KINDS.items():
        package = {"apiextensions": "k8s.io/" + LIBRARIES[2], "apiregistration": "k8s.io/" + LIBRARIES[3]}.get(
            group, f"{APIS}{group}/validation")
        for kind, suffixes in kinds.items():
            roots = [(package, f"Validate{kind}{suffix}") for suffix in suffixes]
            roots += [(package, name) for name in MORE_ROOTS.get(kind, ())]
            shared = metadata if kind in ("Pod", "PodTemplate") else metadata | template
            rules = count(roots, shared) - UNREACHABLE.get(kind, (0,))[0]
            here = rules - MISSING.get(kind, (0,))[0]
            share = f"{100 * here // rules} %" if rules else ""
            print(f"| {kind} | {rules} | {here} | {share} | {counts[kind]} |")
    print(f"\n{sum(counts.values())} cases")


if __name__ == "__main__":
    main(*sys.argv[1:])
