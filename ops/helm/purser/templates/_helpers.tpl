{{- define "purser.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "purser.selector" -}}
app.kubernetes.io/name: purser
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "purser.labels" -}}
{{ include "purser.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "purser.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Settings that both containers have, and those of a Secret, each as a file. Arguments: root, secret, folder. */ -}}
{{- define "purser.environment" -}}
- name: PURSER_MODE
  value: production
- name: PUBLIC_URL
  value: {{ .root.Values.publicUrl | quote }}
{{- range $key := .secret.keys }}
- name: {{ $key }}_FILE
  value: {{ printf "/run/secrets/%s/%s" $.folder $key | quote }}
{{- end }}
{{- end }}

{{- define "purser.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
