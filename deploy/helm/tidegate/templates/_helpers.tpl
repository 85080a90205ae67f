{{- define "tidegate.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tidegate.fullname" -}}
{{- $name := include "tidegate.name" . }}
{{- $default := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- .Values.fullnameOverride | default $default | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tidegate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tidegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tidegate.serviceAccountName" -}}
{{- $created := .Values.serviceAccount.create | ternary (include "tidegate.fullname" .) "default" }}
{{- .Values.serviceAccount.name | default $created }}
{{- end }}

{{- define "tidegate.configMapName" -}}
{{- .Values.limits.existingConfigMap | default (printf "%s-limits" (include "tidegate.fullname" .)) }}
{{- end }}

{{/* The most replicas that run at once: `local` divides limits by this number while Redis is down. */}}
{{- define "tidegate.replicasMax" -}}
{{- .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicas }}
{{- end }}

{{/* Not empty if there is a secret to mount. */}}
{{- define "tidegate.hasSecrets" -}}
{{- with .Values.store }}{{ .passwordSecret.name }}{{ .caSecret.name }}{{ .keySecret.name }}{{ .clientCertSecret }}{{ end }}
{{- with .Values.tls }}{{ .certSecret }}{{ .clientCaSecret.name }}{{ end }}
{{- end }}

{{/* Checks that the schema cannot express. */}}
{{- define "tidegate.validate" -}}
{{- if and (eq .Values.store.url "memory") (gt (int (include "tidegate.replicasMax" .)) 1) }}
{{- fail "store.url is memory: each replica would count by itself and admit the whole limit. Set store.url to a Redis, or replicas to 1" }}
{{- end }}
{{- if le (int .Values.terminationGracePeriodSeconds) (add (int .Values.drainDelaySeconds) (int .Values.drainTimeoutSeconds) | int) }}
{{- fail "terminationGracePeriodSeconds must be more than drainDelaySeconds and drainTimeoutSeconds together, or calls in flight are aborted" }}
{{- end }}
{{- with .Values.tls }}
{{- if and .clientCaSecret.name (not .certSecret) }}
{{- fail "tls.clientCaSecret needs tls.certSecret: without TLS callers present no certificate" }}
{{- end }}
{{- if and .allowClientSans (not .clientCaSecret.name) }}
{{- fail "tls.allowClientSans needs tls.clientCaSecret: names are only checked in verified certificates" }}
{{- end }}
{{- end }}
{{- if and (not .Values.limits.existingConfigMap) (not .Values.limits.files) }}
{{- fail "limits.files is empty: set a limits file, or limits.existingConfigMap" }}
{{- end }}
{{- end }}

{{/*
The text of a setting's value. Large whole numbers must not become 1e+06. YAML reads the words on and
off as booleans; two flags take those words.
*/}}
{{- define "tidegate.settingValue" -}}
{{- $flag := index . 0 }}{{ $value := index . 1 }}
{{- if and (kindIs "bool" $value) (has $flag (list "headers" "dynamic-metadata")) -}}
{{ ternary "on" "off" $value | quote }}
{{- else if and (kindIs "float64" $value) (eq $value (floor $value)) -}}
{{ printf "%.0f" $value | quote }}
{{- else -}}
{{ toString $value | quote }}
{{- end -}}
{{- end }}
