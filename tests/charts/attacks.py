"""What a thief of the operator's token would try, one change each to an object that is allowed."""

from .podspecs import Attack, beside, container, meta, owner, pod_secured, secured, spec, volume, without

ISCSI = {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:a", "lun": 0}
OWNED = "controlled by one TrainingJob"
BEHIND = {"trainmaster.dev/job": "digits", "app.kubernetes.io/name": "trainmaster"}
ELSEWHERE = {"host": "169.254.169.254", "port": 80}
TOKEN = {"serviceAccountToken": {"path": "token"}}
CLOUD_TOKEN = {"serviceAccountToken": {"path": "cloud", "audience": "sts.cloud.example", "expirationSeconds": 86400}}
K3S_TOKEN = {"serviceAccountToken": {"path": "token", "audience": "k3s"}}
LONG_TOKEN = {"serviceAccountToken": {"path": "token", "audience": "trainmaster", "expirationSeconds": 86400}}
API_TOKEN = {"serviceAccountToken": {"path": "token", "audience": "https://kubernetes.default.svc"}}

OWNER_ATTACKS = (
    Attack("no owner", meta(ownerReferences=[]), OWNED),
    Attack("no owner at all", lambda thing: thing["metadata"].pop("ownerReferences"), OWNED),
    Attack("another kind of owner", meta(ownerReferences=[owner(kind="Job", apiVersion="batch/v1")]), OWNED),
    Attack("a kind of that name elsewhere", meta(ownerReferences=[owner(apiVersion="kubeflow.org/v1")]), OWNED),
    Attack("a group that only begins so", meta(ownerReferences=[owner(apiVersion="trainmaster.dev.evil/v1")]), OWNED),
    Attack("an owner that does not control", meta(ownerReferences=[owner(controller=False)]), OWNED),
    Attack("a second owner", meta(ownerReferences=[owner(), owner("b", controller=False)]), OWNED),
    Attack("no label", meta(labels={}), OWNED),
    Attack("the label of another job", meta(labels={"trainmaster.dev/job": "other"}), OWNED),
)

_HOST_ATTACKS = (
    Attack("behind the operator's Service", meta(labels=BEHIND), "Trainmaster's own"),
    Attack("hostPath", volume(hostPath={"path": "/"}), "volumes must be of type"),
    Attack("nfs", volume(nfs={"server": "10.0.0.1", "path": "/"}), "volumes must be of type"),
    Attack("iscsi", volume(iscsi=ISCSI), "volumes must be of type"),
    Attack("hostNetwork", spec(hostNetwork=True), "hostNetwork"),
    Attack("hostPID", spec(hostPID=True), "hostPID"),
    Attack("hostIPC", spec(hostIPC=True), "hostIPC"),
    Attack("hostPort", container(ports=[{"containerPort": 1, "hostPort": 1}]), "hostPort"),
    Attack("a probe elsewhere", container(startupProbe={"httpGet": ELSEWHERE}), "must not name a host"),
    Attack("a probe of ports elsewhere", container(livenessProbe={"tcpSocket": ELSEWHERE}), "must not name a host"),
    Attack("ready elsewhere", container(readinessProbe={"httpGet": ELSEWHERE}), "must not name a host"),
    Attack("a start that calls", container(lifecycle={"postStart": {"httpGet": ELSEWHERE}}), "must not name a host"),
    Attack("an end that calls", container(lifecycle={"preStop": {"tcpSocket": ELSEWHERE}}), "must not name a host"),
    Attack("a node of its choice", spec(nodeName="control-plane"), "nodeName"),
    Attack("the cluster's own priority", spec(priorityClassName="system-node-critical"), "priority classes"),
)

_IDENTITY_ATTACKS = (
    Attack(
        "foreign service account", spec(serviceAccountName="powerful"), "is not among admissionPolicy.serviceAccounts"
    ),
    Attack("automount", spec(automountServiceAccountToken=True), "automountServiceAccountToken must be false"),
    Attack("automount by default", without("automountServiceAccountToken"), "automountServiceAccountToken"),
    Attack("token for the API server", volume(projected={"sources": [API_TOKEN]}), "not be for the API server"),
    Attack("token by another name of it", volume(projected={"sources": [K3S_TOKEN]}), "not be for the API server"),
    Attack("token without audience", volume(projected={"sources": [TOKEN]}), "not be for the API server"),
    Attack(
        "token after a harmless one", volume(projected={"sources": [CLOUD_TOKEN, TOKEN]}), "volume loot: a projected"
    ),
    Attack("a token of ours for a day", volume(projected={"sources": [LONG_TOKEN]}), "for an hour at most"),
)

_ROOT_ATTACKS = (
    Attack("privileged", secured(privileged=True, allowPrivilegeEscalation=True), "must not be privileged"),
    Attack("escalation", secured(allowPrivilegeEscalation=True), "container trainer must set"),
    Attack("escalation by default", secured(allowPrivilegeEscalation=None), "allowPrivilegeEscalation"),
    Attack("no security context", lambda pod: pod["spec"]["containers"][0].pop("securityContext"), "allowPrivilege"),
    Attack("added capability", secured(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}), "adds a capability that"),
    Attack("kept capabilities", secured(capabilities={"drop": ["CHOWN"]}), "capability ALL"),
    Attack("may be root", pod_secured(runAsNonRoot=False), "runAsNonRoot"),
    Attack("container may be root", secured(runAsNonRoot=False), "runAsNonRoot"),
    Attack("root", pod_secured(runAsUser=0), "runAsUser of the pod must not be 0"),
    Attack("container is root", secured(runAsUser=0), "must not set runAsUser to 0"),
    Attack("unconfined", pod_secured(seccompProfile={"type": "Unconfined"}), "seccompProfile"),
    Attack("container unconfined", secured(seccompProfile={"type": "Unconfined"}), "seccompProfile"),
    Attack("no seccomp", pod_secured(seccompProfile=None), "seccompProfile"),
    Attack("no AppArmor", pod_secured(appArmorProfile={"type": "Unconfined"}), "appArmorProfile"),
    Attack("no AppArmor in a container", secured(appArmorProfile={"type": "Unconfined"}), "set appArmorProfile to"),
    Attack("SELinux", pod_secured(seLinuxOptions={"type": "spc_t"}), "seLinuxOptions"),
    Attack("SELinux in a container", secured(seLinuxOptions={"type": "spc_t"}), "windowsOptions or procMount"),
    Attack("sysctl", pod_secured(sysctls=[{"name": "kernel.msgmax", "value": "1"}]), "sysctls"),
    Attack("host process", pod_secured(windowsOptions={"hostProcess": False}), "windowsOptions"),
    Attack("privileged beside", beside("containers"), "container beside must not be privileged"),
    Attack("privileged before", beside("initContainers"), "container beside must not be privileged"),
)

POD_ATTACKS = OWNER_ATTACKS + _HOST_ATTACKS + _IDENTITY_ATTACKS + _ROOT_ATTACKS

SERVICE_ATTACKS = (
    *OWNER_ATTACKS,
    Attack("an address of its own", without("clusterIP"), "headless"),
    Attack("a port on every node", spec(type="NodePort", clusterIP=None), "headless"),
    Attack("a load balancer", spec(type="LoadBalancer", clusterIP=None), "headless"),
    Attack("a name for elsewhere", spec(type="ExternalName", externalName="example.org", clusterIP=None), "headless"),
    Attack("somebody else's address", spec(externalIPs=["10.0.0.1"]), "no external addresses"),
    Attack("other pods", spec(selector={"app": "database"}), "select the pods of its own"),
    Attack("no selector", without("selector"), "select the pods of its own"),
)

_ANYBODY: dict[str, object] = {"podSelector": {}}
_OTHERS = {"podSelector": {"matchLabels": {"trainmaster.dev/job": "other"}}}
_OWN = {"podSelector": {"matchLabels": {"trainmaster.dev/job": "digits"}}}

NETWORK_POLICY_ATTACKS = (
    *OWNER_ATTACKS,
    Attack("around all pods of the namespace", spec(podSelector={}), "select the pods of its own"),
    Attack("around another job's pods", spec(**_OTHERS), "select the pods of its own"),
    Attack("outwards", spec(policyTypes=["Ingress", "Egress"]), "nobody else"),
    Attack("open to all", spec(ingress=[{}]), "nobody else"),
    Attack("open to none", without("ingress"), "nobody else"),
    Attack("open to the namespace", spec(ingress=[{"from": [_ANYBODY]}]), "nobody else"),
    Attack("open to another job", spec(ingress=[{"from": [_OTHERS]}]), "nobody else"),
    Attack("open to more", spec(ingress=[{"from": [_OWN, _OTHERS]}]), "nobody else"),
    Attack("open by a second rule", spec(ingress=[{"from": [_OWN]}, {}]), "nobody else"),
    Attack("open elsewhere", spec(ingress=[{"from": [{**_OWN, "namespaceSelector": {}}]}]), "nobody else"),
    Attack("open to addresses", spec(ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]), "nobody else"),
    Attack("for one port", spec(ingress=[{"from": [_OWN], "ports": [{"port": 1}]}]), "nobody else"),
)
