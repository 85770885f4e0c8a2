package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// goldenFile is the whole of golden.json.
type goldenFile struct {
	Source sourceInfo   `json:"source"`
	Cases  []goldenCase `json:"cases"`
}

// sourceInfo says what has spoken, so that a reader can tell two generations of the file apart.
type sourceInfo struct {
	Kubernetes    string          `json:"kubernetes"`
	CRIClient     string          `json:"cri_client"`
	GRPC          string          `json:"grpc"`
	Unicode       string          `json:"unicode"`
	FeatureGates  map[string]bool `json:"feature_gates"`
	BackOffInitMS int64           `json:"back_off_initial_ms"`
	BackOffMaxMS  int64           `json:"back_off_max_ms"`
}

// goldenCase is one image, one policy and one scripted runtime, with the calls made on them in order.
type goldenCase struct {
	Name         string        `json:"name"`
	Tags         []string      `json:"tags"`
	Image        string        `json:"image"`
	Policy       string        `json:"policy"`
	Throttle     *throttle     `json:"throttle,omitempty"`
	Credentials  []credential  `json:"credentials,omitempty"`
	Script       script        `json:"script"`
	RuntimeImage string        `json:"runtime_image"`
	Calls        []callOutcome `json:"calls"`
}

// throttle is kubelet's registryPullQPS and registryBurst; a case without it pulls unthrottled.
type throttle struct {
	QPS   float32 `json:"qps"`
	Burst int     `json:"burst"`
}

// credential is one entry of `auths` in the node's config.json.
type credential struct {
	Registry string `json:"registry"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// script holds the runtime's answers: consumed in order, the last one repeats.
type script struct {
	ImageStatus []statusAnswer `json:"image_status"`
	PullImage   []pullAnswer   `json:"pull_image"`
	// The same answers seen by state: entry k is what ImageStatus says after k successful PullImage calls
	// (the last one repeats). Null where only the order tells.
	ImageStatusAfterPulls []statusAnswer `json:"image_status_after_pulls"`
}

// grpcError is a status with which an answer fails.
type grpcError struct {
	Code    uint32 `json:"code"`
	Message string `json:"message"`
}

// runtimeImage is the part of a CRI image that the image manager reads.
type runtimeImage struct {
	ID   string `json:"id"`
	Size uint64 `json:"size"`
}

// statusAnswer is an error, or an image; neither means that the runtime does not have it.
type statusAnswer struct {
	Error *grpcError
	Image *runtimeImage
}

// MarshalJSON writes {"code","message"} for an error and {"image": null|{...}} for an answer.
func (a statusAnswer) MarshalJSON() ([]byte, error) {
	if a.Error != nil {
		return marshalPlain(a.Error)
	}
	return marshalPlain(struct {
		Image *runtimeImage `json:"image"`
	}{a.Image})
}

// pullAnswer is an error, or the image_ref of a success.
type pullAnswer struct {
	Error    *grpcError
	ImageRef string
}

// MarshalJSON writes {"code","message"} for an error and {"image_ref"} for a success.
func (a pullAnswer) MarshalJSON() ([]byte, error) {
	if a.Error != nil {
		return marshalPlain(a.Error)
	}
	return marshalPlain(struct {
		ImageRef string `json:"image_ref"`
	}{a.ImageRef})
}

// callOutcome is one EnsureImageExists call: what moved before it, what it returned, what it emitted.
type callOutcome struct {
	Pod       string          `json:"pod"`
	AdvanceMS int64           `json:"advance_ms"`
	Reason    string          `json:"reason"`
	Message   string          `json:"message"`
	ImageRef  string          `json:"image_ref"`
	Events    []recordedEvent `json:"events"`
	CRICalls  []string        `json:"cri_calls"`
	PullUsers []string        `json:"pull_users,omitempty"`
}

// recordedEvent is an event as the image manager hands it to its recorder.
type recordedEvent struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// marshalPlain encodes without the HTML escapes that encoding/json adds by default.
func marshalPlain(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("encode %T: %w", value, err)
	}
	return buffer.Bytes(), nil
}

// write prints the file in a stable form. Text that JSON cannot carry unchanged is refused, not replaced.
func (f *goldenFile) write(to io.Writer) error {
	for _, one := range f.Cases {
		for _, text := range one.texts() {
			if !utf8.ValidString(text) {
				return fmt.Errorf("case %s: %q is not UTF-8, so golden.json cannot carry it; drop it from the cases", one.Name, text)
			}
		}
	}
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	return encoder.Encode(f)
}

// texts are all strings of a case that come from outside the generator's own source.
func (c *goldenCase) texts() []string {
	texts := []string{c.Image, c.RuntimeImage}
	for _, answer := range c.Script.ImageStatus {
		if answer.Error != nil {
			texts = append(texts, answer.Error.Message)
		}
	}
	for _, answer := range c.Script.PullImage {
		texts = append(texts, answer.ImageRef)
		if answer.Error != nil {
			texts = append(texts, answer.Error.Message)
		}
	}
	for _, call := range c.Calls {
		texts = append(texts, call.Message, call.ImageRef)
		for _, event := range call.Events {
			texts = append(texts, event.Message)
		}
	}
	return texts
}
