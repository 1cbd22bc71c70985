"""What is read in WGSL: bindings, overrides, features, sizes."""

import pytest

from webtune.kernel.wgsl import interface, workgroup_size

MODULE = """
enable f16, subgroups;
// @group(0) @binding(9) var<storage> commented: array<f32>;
/* override GONE: u32; /* nested */ */
alias Row = vec4<f32>;
struct Dims { m: u32, n: u32, @align(16) k: vec3f, last: f16 }
override WG: u32;
@id(7) override SCALE: f32 = 2.0;
override DOUBLE: u32 = 2u * WG;
@group(0) @binding(2) var<uniform> dims: Dims;
@binding(0) @group(0) var<storage, read> x: array<Row>;
@group(0) @binding(1)
var<storage, read_write> y: array<atomic<u32>>;
@group(1) @binding(0) var<storage> other: array<f32>;
var<workgroup> tile: array<f32, WG>;
@compute @workgroup_size(WG) fn main() {}
@workgroup_size(1) @compute fn second() {}
fn helper() {}
"""


def test_bindings_come_in_order_with_kind_and_element():
    found = interface(MODULE).bindings
    assert [(b.index, b.name, b.kind, b.element) for b in found] == [
        (0, "x", "read-only-storage", "f32"),
        (1, "y", "storage", "u32"),
        (2, "dims", "uniform", ""),
    ]
    assert [b.written for b in found] == [False, True, False]


def test_overrides_are_known_by_name_and_called_by_id():
    found = {o.name: o for o in interface(MODULE).overrides}
    assert set(found) == {"WG", "SCALE", "DOUBLE"}
    assert found["SCALE"].key == "7"
    assert interface(MODULE).required == {"WG"}


def test_features_and_entry_points_are_read():
    assert interface(MODULE).features == {"shader-f16", "subgroups"}
    assert interface(MODULE).entries == ("main", "second")


@pytest.mark.parametrize(
    ("type_", "least"),
    [
        ("array<f32>", 4),
        ("array<vec3<f32>>", 16),
        ("array<vec4f, 8>", 128),
        ("array<array<f32, 3>, 2>", 24),
        ("mat3x3<f32>", 48),
        ("vec3<u32>", 12),
        ("f32", 4),
        ("array<f32, WG>", 0),
    ],
)
def test_least_sizes_follow_the_layout_rules(type_, least):
    (binding,) = interface(f"@group(0) @binding(0) var<storage> x: {type_};").bindings
    assert binding.least_bytes == least


def test_a_struct_is_measured_member_by_member():
    dims = interface(MODULE).bindings[2]
    assert dims.least_bytes == 32  # 8 for m and n, k at 16..28, last at 28..30, rounded to 16


@pytest.mark.parametrize(
    ("size", "constants", "answer"),
    [
        ("64", {}, (64,)),
        ("WG, 2u", {"WG": 32}, (32, 2)),
        ("WG / 2, ROWS * (2 + 1)", {"WG": 32}, (16, 12)),
        ("TWICE", {"WG": 8}, (16,)),
        ("WG", {}, None),
        ("max(WG, 4)", {"WG": 8}, None),
        ("WG / ZERO", {"WG": 8}, None),
    ],
)
def test_workgroup_sizes_are_worked_out_where_they_are_plain_arithmetic(size, constants, answer):
    source = f"""
    const ROWS = 4u; const ZERO = 0; override WG: u32; override TWICE: u32 = WG * 2u;
    @compute @workgroup_size(1) fn other() {{}}
    @compute @workgroup_size({size}) fn main() {{}}
    """
    assert workgroup_size(source, "main", constants) == answer
    assert workgroup_size(source, "other", constants) == (1,)
