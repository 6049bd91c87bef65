{{- /* The objects' names: the release's, so that several releases do not meet. */ -}}
{{- define "rightsizer.name" -}}
{{- $release := ternary .Release.Name (printf "%s-%s" .Release.Name .Values.nameOverride) (empty .Values.nameOverride) -}}
{{- .Values.fullnameOverride | default $release | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "rightsizer.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "rightsizer.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | required "serviceAccount.create is false: set serviceAccount.name to one that exists" -}}
{{- end -}}
{{- end -}}

{{- define "rightsizer.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rightsizer.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "rightsizer" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "rightsizer.labels" -}}
{{ include "rightsizer.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
