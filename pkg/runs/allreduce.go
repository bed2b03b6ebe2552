package runs

// AllReduceTimes contains measured times of all-reduces between hosts, beside the predictions of
// the latency–bandwidth model: n bytes arrive after a latency plus n divided by a bandwidth.
type AllReduceTimes struct {
	Machine string `json:"machine"`
	Commit  string `json:"commit"`
	Hosts   int    `json:"hosts"`
	PerHost int    `json:"ranks_per_host"`
	Link    string `json:"link"` // limits of each host's connection, for people
	// Between and Within are measured between two hosts and between two ranks of one host.
	// Within is zero if each host has one rank.
	Between LinkSpeed       `json:"between_hosts"`
	Within  LinkSpeed       `json:"within_hosts"`
	Rows    []AllReduceTime `json:"rows"` // by size, then by algorithm
}

// LinkSpeed is the latency and the bandwidth of a connection.
type LinkSpeed struct {
	LatencySeconds float64 `json:"latency_seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// AllReduceTime is the time of one all-reduce of one size by one algorithm.
type AllReduceTime struct {
	Algorithm string  `json:"algorithm"`
	Bytes     int     `json:"size_bytes"`
	Seconds   float64 `json:"seconds"` // median of the repeats
	// LowSeconds and HighSeconds are the shortest and the longest time of the repeats.
	LowSeconds  float64 `json:"low_seconds"`
	HighSeconds float64 `json:"high_seconds"`
	Repeats     int     `json:"repeats"`
	Wrong       int     `json:"wrong"` // wrong elements on all ranks, in the checks before and after
	// Steps, CriticalBytes and ModelSeconds are the prediction, see schedule.Cost.
	Steps         int     `json:"model_steps"`
	CriticalBytes float64 `json:"model_critical_bytes"`
	ModelSeconds  float64 `json:"model_seconds"`
}
