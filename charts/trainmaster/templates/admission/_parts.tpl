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
