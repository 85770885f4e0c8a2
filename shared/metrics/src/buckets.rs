//! Upper bounds of histograms, and their origins.

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_024.0 * MIB;

/// Seconds. The buckets of `kubelet_image_pull_duration_seconds`, so that both can be compared.
pub(crate) const PULL_SECONDS: [f64; 18] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1_200.0, 1_800.0, 2_700.0, 3_600.0];

/// Seconds. The buckets of `kubelet_runtime_operations_duration_seconds`, which has the operation `pull_image`: 14 buckets from 5 ms, each
/// 2.5 times the previous.
pub(crate) const ATTEMPT_SECONDS: [f64; 14] = [
    0.005,
    0.0125,
    0.031_25,
    0.078_125,
    0.195_312_5,
    0.488_281_25,
    1.220_703_125,
    3.051_757_812_5,
    7.629_394_531_25,
    19.073_486_328_125,
    47.683_715_820_312_5,
    119.209_289_550_781_25,
    298.023_223_876_953_1,
    745.058_059_692_382_8,
];

/// Seconds. Kubelet has no such histogram. An answer of the bus takes 10 ms, a pull waits at most 10 s for the fleet (`throttle.max_wait`),
/// and kubelet's back-off is 10 s to 300 s.
pub(crate) const WAIT_SECONDS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Bytes. The bounds of kubelet's label `image_size_in_bytes`.
pub(crate) const SIZE_BYTES: [f64; 11] =
    [10.0 * MIB, 100.0 * MIB, 500.0 * MIB, GIB, 5.0 * GIB, 10.0 * GIB, 20.0 * GIB, 30.0 * GIB, 40.0 * GIB, 60.0 * GIB, 100.0 * GIB];
