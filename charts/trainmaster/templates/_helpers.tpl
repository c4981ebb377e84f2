{{/* Objects carry this name whatever the release is called: the operator finds its own Service by it. */}}
{{- define "trainmaster.name" -}}
trainmaster
{{- end -}}

{{/* Objects that are cluster-scoped in namespaced mode too: several such releases may stand beside one another. */}}
{{- define "trainmaster.clusterName" -}}
{{- if eq (include "trainmaster.namespaced" .) "true" -}}
trainmaster-{{ .Release.Namespace }}
{{- else -}}
trainmaster
{{- end -}}
{{- end -}}

{{- define "trainmaster.namespaced" -}}
{{- or (eq .Values.scope "Namespaced") (not (empty .Values.namespaces)) -}}
{{- end -}}

{{/* The namespaces of namespaced mode, one per line. */}}
{{- define "trainmaster.namespaces" -}}
{{- .Values.namespaces | default (list .Release.Namespace) | join "\n" -}}
{{- end -}}

{{/* A switch that is unset follows the scope: on in cluster mode, off in namespaced mode. */}}
{{- define "trainmaster.byScope" -}}
{{- if kindIs "bool" .value -}}
{{- .value -}}
{{- else -}}
{{- ne (include "trainmaster.namespaced" .root) "true" -}}
{{- end -}}
{{- end -}}

{{- define "trainmaster.selector" -}}
app.kubernetes.io/name: trainmaster
app.kubernetes.io/component: operator
{{- end -}}

{{- define "trainmaster.labels" -}}
{{ include "trainmaster.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "trainmaster.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "trainmaster.name" . }}
{{- end -}}

{{/* The image `.name` of `root`'s values, or the one of this version from the registry of the values. */}}
{{- define "trainmaster.image" -}}
{{- $default := printf "trainmaster/%s:%s" .name .root.Chart.AppVersion -}}
{{- with .root.Values.image.registry -}}
{{- $default = printf "%s/%s" . $default -}}
{{- end -}}
{{- get .root.Values.image .name | default $default -}}
{{- end -}}
