{{/* Everything that the operator may do: the same list in both modes. tests/charts holds it word by word. */}}
{{- define "trainmaster.rules" -}}
- apiGroups: [trainmaster.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [trainmaster.dev]
  resources: [trainingjobs/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create]
{{- if .Values.jobNetworkPolicy.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create]
{{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}
