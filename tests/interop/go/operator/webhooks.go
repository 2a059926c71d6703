package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// hooks defaults and validates sites.
type hooks struct{}

// Default sets the image.
func (hooks) Default(_ context.Context, site *Site) error {
	if site.Spec.Image == "" {
		site.Spec.Image = "registry.example/web:1"
	}
	return nil
}

func validate(site *Site) (admission.Warnings, error) {
	if site.Spec.Replicas != nil && *site.Spec.Replicas > 10 {
		return nil, errors.New("at most 10 replicas")
	}
	if site.Spec.Replicas != nil && *site.Spec.Replicas > 5 {
		return admission.Warnings{"many replicas"}, nil
	}
	return nil, nil
}

// ValidateCreate rejects too many replicas.
func (hooks) ValidateCreate(_ context.Context, site *Site) (admission.Warnings, error) {
	return validate(site)
}

// ValidateUpdate rejects too many replicas.
func (hooks) ValidateUpdate(_ context.Context, _, site *Site) (admission.Warnings, error) {
	return validate(site)
}

// ValidateDelete rejects the deletion of a protected site.
func (hooks) ValidateDelete(_ context.Context, site *Site) (admission.Warnings, error) {
	if site.Annotations["protected"] == "true" {
		return nil, errors.New("the site is protected")
	}
	return nil, nil
}

func configurations(base string, ca []byte) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	config := func(path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{URL: ptr.To(base + path), CABundle: ca}
	}
	rules := func(operations ...admissionv1.OperationType) []admissionv1.RuleWithOperations {
		return []admissionv1.RuleWithOperations{{Operations: operations,
			Rule: admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"sites"}}}}
	}
	none := admissionv1.SideEffectClassNone
	mutating := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "site-operator"},
		Webhooks: []admissionv1.MutatingWebhook{{Name: "default." + group, ClientConfig: config("/mutate-interop-example-com-v1-site"),
			Rules: rules("CREATE", "UPDATE"), SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}}}
	validating := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "site-operator"},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: "validate." + group, ClientConfig: config("/validate-interop-example-com-v1-site"),
			Rules: rules("CREATE", "UPDATE", "DELETE"), SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}}}
	return mutating, validating
}

// convert answers a ConversionReview: it sets the version, and an annotation with both versions.
func convert(w http.ResponseWriter, request *http.Request) {
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(request.Body).Decode(review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw.Raw); err != nil {
			response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			break
		}
		from := object.GetAPIVersion()[strings.LastIndex(object.GetAPIVersion(), "/")+1:]
		object.SetAPIVersion(review.Request.DesiredAPIVersion)
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["converted"] = from + " to " + review.Request.DesiredAPIVersion
		object.SetAnnotations(annotations)
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: object})
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}
