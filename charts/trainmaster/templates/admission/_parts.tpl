{{- define "trainmaster.fenced" -}}
{{- include "trainmaster.byScope" (dict "value" .Values.admissionPolicy.enabled "root" .) -}}
{{- end -}}

{{/* Only the operator's own requests are judged; what others may do is their roles' affair. */}}
{{- define "trainmaster.fromOperator" -}}
- name: from-the-operator
  expression: request.userInfo.username == {{ include "trainmaster.user" . | squote }}
{{- end -}}

{{/* Variables: the TrainingJob that controls the object, and whether there is exactly one such owner and no other. */}}
{{- define "trainmaster.ownerVariables" -}}
- name: owners
  expression: object.metadata.?ownerReferences.orValue([])
- name: owned
  expression: >-
    size(variables.owners) == 1 && variables.owners[0].?controller.orValue(false)
    && variables.owners[0].kind == 'TrainingJob' && variables.owners[0].apiVersion.startsWith('trainmaster.dev/')
    && object.metadata.?labels['trainmaster.dev/job'].orValue('') == variables.owners[0].name
{{- end -}}

{{/* The namespaces where nothing may be made, as a CEL list. */}}
{{- define "trainmaster.deniedNamespaces" -}}
{{- $denied := .Values.admissionPolicy.deniedNamespaces -}}
{{- if ne (include "trainmaster.namespaced" .) "true" -}}
{{- $denied = append $denied .Release.Namespace -}}
{{- end -}}
{{- $denied | toJson -}}
{{- end -}}

{{/* One binding per policy: refuse, everywhere. Takes (dict "root" . "policy" name). */}}
{{- define "trainmaster.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .policy }}
  labels:
    {{- include "trainmaster.labels" .root | nindent 4 }}
spec:
  policyName: {{ .policy }}
  validationActions: [Deny]
{{- end -}}

{{/*
One rule about every container, whose message names the first that breaks it. Takes (dict "bad" a condition on c in CEL
"words" what follows the name); "allowable" where an administrator may allow it, so that a job waits.
*/}}
{{- define "trainmaster.containerRule" -}}
- expression: >-
    !variables.containers.exists(c, {{ .bad }})
  {{- if .allowable }}
  reason: Forbidden
  {{- end }}
  messageExpression: >-
    'container ' + variables.containers.filter(c, {{ .bad }})[0].name + {{ printf " %s" .words | quote }}
{{- end -}}

{{/* The same about every projected service account token t; the message names its volume. */}}
{{- define "trainmaster.tokenRule" -}}
{{- $bad := printf "v.?projected.sources.orValue([]).exists(s, has(s.serviceAccountToken) && [s.serviceAccountToken].exists(t, %s))" .bad -}}
- expression: >-
    !variables.volumes.exists(v, {{ $bad }})
  {{- if .allowable }}
  reason: Forbidden
  {{- end }}
  messageExpression: >-
    'volume ' + variables.volumes.filter(v, {{ $bad }})[0].name + {{ .words | quote }}
{{- end -}}

{{/* A probe or hook of container c that calls another host: whoever may make pods could so reach where the node can. */}}
{{- define "trainmaster.callsElsewhere" -}}
[?c.?livenessProbe, ?c.?readinessProbe, ?c.?startupProbe].exists(p, p.?httpGet.host.orValue('') != ''
|| p.?tcpSocket.host.orValue('') != '') || [?c.?lifecycle.postStart, ?c.?lifecycle.preStop].exists(h,
h.?httpGet.host.orValue('') != '' || h.?tcpSocket.host.orValue('') != '')
{{- end -}}
