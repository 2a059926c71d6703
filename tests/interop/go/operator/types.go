package main

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const group = "interop.example.com"

var storageVersion = schema.GroupVersion{Group: group, Version: "v1"}

// Site is a custom resource: a Deployment with a number of replicas.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SiteSpec   `json:"spec"`
	Status            SiteStatus `json:"status,omitempty"`
}

// SiteSpec is the desired state.
type SiteSpec struct {
	Image    string `json:"image,omitempty"`
	Replicas *int32 `json:"replicas,omitempty"`
}

// SiteStatus is the observed state.
type SiteStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Replicas           int32              `json:"replicas,omitempty"`
	Selector           string             `json:"selector,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// SiteList is a list of sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}

func copyOf[T any](from *T) *T {
	to := new(T)
	if bytes, err := json.Marshal(from); err != nil || json.Unmarshal(bytes, to) != nil {
		panic("types of this program have a JSON form")
	}
	return to
}

// DeepCopyObject returns a copy.
func (s *Site) DeepCopyObject() runtime.Object { return copyOf(s) }

// DeepCopyObject returns a copy.
func (l *SiteList) DeepCopyObject() runtime.Object { return copyOf(l) }

// definition is the CustomResourceDefinition: two versions of one schema, with a status, a scale and columns.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.interop.example.com}
spec:
  group: interop.example.com
  scope: Namespaced
  names: {plural: sites, singular: site, kind: Site, listKind: SiteList, shortNames: [st], categories: [all]}
  versions:
  - &version
    name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            properties:
              image: {type: string, maxLength: 100}
              replicas: {type: integer, format: int32, minimum: 0, default: 2}
            x-kubernetes-validations:
            - {rule: "!has(self.image) || self.image != 'forbidden'", message: that image is forbidden}
          status:
            type: object
            properties:
              observedGeneration: {type: integer, format: int64}
              replicas: {type: integer, format: int32}
              selector: {type: string}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type, status, reason, message, lastTransitionTime]
                  properties:
                    type: {type: string}
                    status: {type: string, enum: ["True", "False", Unknown]}
                    reason: {type: string}
                    message: {type: string}
                    observedGeneration: {type: integer, format: int64}
                    lastTransitionTime: {type: string, format: date-time}
  - <<: *version
    name: v1beta1
    storage: false
`
