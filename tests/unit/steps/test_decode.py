"""Every kind of file that a folder of photographs holds, made here in memory."""

from __future__ import annotations

import re
import struct
import sys
import threading
import warnings
import zlib
from importlib.util import find_spec
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from c2b_ray.errors import ImageError
from c2b_ray.jpeg_header import read_header
from c2b_ray.steps.decode import decode, decode_batch, decode_reduced, decode_to_show

HEIC = pytest.param("HEIF", marks=pytest.mark.skipif(not find_spec("pillow_heif"), reason="the extra heic is missing"))
FORMATS = ["JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", HEIC]


def picture(width: int = 48, height: int = 32) -> Image.Image:
    """Red to the left, green below: every flip shows."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([255 - x * 255 // width, y * 255 // height, np.full_like(x, 40)], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    stream = BytesIO()
    if form == "HEIF":
        import pillow_heif

        pillow_heif.register_heif_opener()
    image.save(stream, form, **options)
    return stream.getvalue()


def png(width: int, height: int, bits: int, colour: int, rows: bytes) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_gives_upright_rgb(form: str) -> None:
    pixels = decode(encoded(picture(), form))
    assert pixels.dtype == np.uint8
    assert pixels.shape == (32, 48, 3)
    assert pixels.flags.writeable
    assert pixels.flags.c_contiguous
    assert np.abs(pixels.astype(int) - np.asarray(picture()).astype(int)).mean() < 12


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.95])
def test_a_truncated_file_is_refused_not_half_decoded(form: str, share: float) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    whole = encoded(noise, form)
    decode(whole)
    with pytest.raises(ImageError):
        decode(whole[: int(len(whole) * share)])


def test_a_progressive_jpeg_cut_between_scans_is_refused() -> None:
    whole = encoded(picture(), "JPEG", progressive=True)
    with pytest.raises(ImageError, match="truncated"):
        decode(whole[: int(len(whole) * 0.8)])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "zero bytes"),
        (b"<html>404</html>", "not an image"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "not an image"),
        (b"\xff\xd8\xff", "damaged"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "damaged"),
        (b"%PDF-1.7", "not an image"),
    ],
)
def test_what_is_no_image_says_so(data: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        decode(data)


@pytest.mark.parametrize("form", ["AVIF", HEIC])
def test_the_caps_hold_for_pictures_in_media_files(form: str) -> None:
    data = encoded(picture(100, 50), form)
    with pytest.raises(ImageError, match="at most 10 are decoded"):
        decode(data, max_bytes=10)
    with pytest.raises(ImageError, match="100 × 50 pixels"):
        decode(data, max_pixels=4999)
    assert decode(data, max_pixels=5000).shape == (50, 100, 3)


@pytest.mark.parametrize("form", [HEIC])
def test_of_several_pictures_in_a_heic_the_primary_one_is_read(form: str) -> None:
    first, second = picture(), picture().rotate(180)
    stored = encoded(first, form, save_all=True, append_images=[second], primary_index=1)
    assert np.abs(decode(stored).astype(int) - np.asarray(second).astype(int)).mean() < 12


def test_a_heic_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    header = b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic"
    with pytest.raises(ImageError, match=r"pip install 'c2b-ray\[heic\]'"):
        decode(header)


@pytest.mark.parametrize("brand", [b"isom", b"qt  ", b"mp42"])
def test_a_film_is_no_image(brand: bytes) -> None:
    with pytest.raises(ImageError, match="not an image"):
        decode(b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0" + brand + b"mp41")


def test_the_caps_hold_before_anything_is_decoded() -> None:
    data = encoded(picture(100, 50))
    with pytest.raises(ImageError, match="at most 10 are decoded"):
        decode(data, max_bytes=10)
    with pytest.raises(ImageError, match="100 × 50 pixels"):
        decode(data, max_pixels=4999)
    decode(data, max_pixels=5000)
    # 20,000 × 20,000 would be 1.2 GB: only its header is there, so reaching the pixels would be another error.
    bomb = png(20_000, 20_000, 8, 2, b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ImageError, match="20000 × 20000 pixels"):
            decode(bomb)
        # Above Pillow's own limit, whose warning must not leak either: the pixels are missing, so it is damaged.
        with pytest.raises(ImageError, match="damaged"):
            decode(png(10_000, 10_000, 1, 0, b""), max_pixels=10**9)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "AVIF"])
def test_an_animation_is_refused(form: str) -> None:
    frames = [picture(), picture().rotate(90), picture().rotate(180)]
    data = encoded(frames[0], form, save_all=True, append_images=frames[1:], duration=50)
    with pytest.raises(ImageError, match="animated: 3 frames; give single frames"):
        decode(data)


def test_a_tiff_of_several_pages_is_refused() -> None:
    data = encoded(picture(), "TIFF", save_all=True, append_images=[picture()])
    with pytest.raises(ImageError, match="several pages: 2 frames"):
        decode(data)


def test_a_two_picture_jpeg_is_its_first_picture() -> None:
    data = encoded(picture(), "MPO", save_all=True, append_images=[picture().rotate(180)])
    assert decode(data)[0, 0, 0] > 200


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    values = np.array([[0, 255, 257, 32768, 65535]], dtype=np.uint16)
    # v × 255 / 65535 = v / 257: 255 → 0.99, 32768 → 127.5 (rounded to even)
    expected = [0, 1, 1, 128, 255]
    for form in ("PNG", "TIFF"):
        pixels = decode(encoded(Image.fromarray(values), form))
        assert pixels[0, :, 0].tolist() == expected, form
        assert (pixels[..., 0] == pixels[..., 2]).all()
    grey = b"P5 5 1 65535\n" + values.astype(">u2").tobytes()
    assert decode(grey)[0, :, 1].tolist() == expected


def test_sixteen_bit_colour_is_scaled() -> None:
    row = b"\0" + np.array([65535, 32768, 0], dtype=">u2").tobytes()
    assert decode(png(1, 1, 16, 2, row))[0, 0].tolist() == [255, 128, 0]


def test_floats_state_no_range() -> None:
    with pytest.raises(ImageError, match="no range of brightness"):
        decode(encoded(Image.fromarray(np.ones((4, 4), dtype=np.float32)), "TIFF"))


def test_cmyk_jpeg_is_converted() -> None:
    pixels = decode(encoded(picture().convert("CMYK"), "JPEG", quality=95))
    assert np.abs(pixels.astype(int) - np.asarray(picture()).astype(int)).mean() < 12


def test_grey_one_bit_and_palette() -> None:
    grey = decode(encoded(picture().convert("L")))
    assert (grey[..., 0] == grey[..., 1]).all()
    assert set(np.unique(decode(encoded(picture().convert("1"))))) == {0, 255}
    palette = decode(encoded(picture().convert("P", palette=Image.Palette.ADAPTIVE)))
    assert np.abs(palette.astype(int) - np.asarray(picture()).astype(int)).mean() < 8


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_lies_over_white(mode: str) -> None:
    image = Image.new("RGBA", (4, 2), (0, 0, 0, 255))
    image.paste((0, 0, 0, 0), (0, 0, 2, 2))
    data = encoded(image.convert(mode), "PNG")
    pixels = decode(data)
    assert (pixels[:, :2] == 255).all()
    assert (pixels[:, 2:] == 0).all()


def test_half_transparent_black_is_mid_grey() -> None:
    pixels = decode(encoded(Image.new("RGBA", (1, 1), (0, 0, 0, 128))))
    assert pixels[0, 0].tolist() == [127, 127, 127]  # 255 × (1 − 128/255)


def test_palette_with_a_transparent_entry_does_not_warn() -> None:
    image = picture().convert("P")
    data = encoded(image, "PNG", transparency=bytes([0] * 256))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (decode(data) == 255).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "AVIF", HEIC, "TIFF"])
def test_exif_orientation_is_applied(form: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = picture()
    # What a viewer does to the stored picture, after the EXIF standard's table.
    flips = {
        1: lambda p: p,
        2: lambda p: p[:, ::-1],
        3: lambda p: p[::-1, ::-1],
        4: lambda p: p[::-1],
        5: lambda p: p.transpose(1, 0, 2),
        6: lambda p: np.rot90(p, -1),
        7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
        8: lambda p: np.rot90(p, 1),
    }
    options = {"lossless": True} if form == "WEBP" else {}
    data = encoded(stored, form, exif=exif.tobytes(), **options)
    expected = flips[orientation](np.asarray(stored)).astype(int)
    pixels = decode(data)
    assert pixels.shape == expected.shape
    assert np.abs(pixels.astype(int) - expected).mean() < 12


@pytest.mark.parametrize("marker", [b"\xff\xe0", b"\xff\xed"])  # where JFIF and Photoshop keep small pictures
def test_exif_is_found_behind_a_small_picture_with_pixels_of_its_own(marker: bytes) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    small = encoded(picture(8, 8), "JPEG")
    segment = marker + struct.pack(">H", 2 + 5 + len(small)) + b"JFXX\0" + small
    data = encoded(picture(), "JPEG", exif=exif.tobytes())
    assert decode(data[:2] + segment + data[2:]).shape == (48, 32, 3)


def test_a_picture_that_xmp_alone_turns_is_turned_and_no_gpu_decodes_it() -> None:
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    data = encoded(picture(), "JPEG", xmp=xmp)
    assert decode(data).shape == (48, 32, 3)
    header = read_header(data)
    assert header is not None
    assert not header.plain


def test_a_plain_jpeg_is_not_opened_by_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [decode(data) for data in jpegs()]
    monkeypatch.setattr("c2b_ray.steps.decode._opened", None)
    for data, pixels in zip(jpegs(), expected, strict=True):
        np.testing.assert_array_equal(decode(data), pixels)


def test_a_broken_exif_block_counts_as_upright() -> None:
    data = encoded(picture(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff garbage")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(data).shape == (32, 48, 3)


def test_a_batch_keeps_its_order_and_its_bad_rows() -> None:
    good = encoded(picture())
    images, errors = decode_batch([good, None, b"", b"junk", good])
    assert [image is None for image in images] == [False, True, True, True, False]
    assert errors[0] is None
    assert errors[4] is None
    assert errors[1] == "no bytes"
    assert "zero bytes" in str(errors[2])
    assert "not an image" in str(errors[3])
    assert decode_batch([]) == ([], [])


def test_threads_leave_the_warning_filters_as_they_were() -> None:
    data = [encoded(picture()), b"GIF89a junk", encoded(picture(), "WEBP")]
    before = list(warnings.filters)
    threads = [threading.Thread(target=lambda: decode_batch(data * 20)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before


def jpegs() -> list[bytes]:
    """Kinds of JPEG: chroma subsampling, progressive scans, restart markers, grey, RGB as such, odd sizes."""
    random = np.random.default_rng(4)
    smooth = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    found = []
    for number, (width, height) in enumerate([(61, 47), (64, 64), (17, 90), (1, 1)]):
        image = smooth.resize((width, height), Image.Resampling.BICUBIC)
        found += [encoded(image, "JPEG", subsampling=s, quality=40 + 15 * number) for s in (0, 1, 2)]
        found += [encoded(image, "JPEG", progressive=True), encoded(image, "JPEG", restart_marker_blocks=1)]
        found += [encoded(image.convert("L"), "JPEG"), encoded(image, "JPEG", keep_rgb=True)]
    return found


def outcome(data: bytes) -> tuple[object, ...]:
    try:
        pixels = decode(data)
    except ImageError as error:
        return (str(error),)
    return pixels.shape, pixels.tobytes()


def test_a_jpeg_decoded_past_pillow_is_pillows_pixel_for_pixel() -> None:
    for data in jpegs():
        pixels = decode(data)
        with Image.open(BytesIO(data)) as image:
            np.testing.assert_array_equal(pixels, np.asarray(image.convert("RGB")))
        assert pixels.flags.writeable
        assert pixels.flags.c_contiguous


def test_damage_is_judged_by_pillow_whoever_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = damaged_jpegs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [outcome(data) for data in damaged]
    monkeypatch.setattr("c2b_ray.steps.decode._turbo", lambda data, size, factor: None)
    assert found == [outcome(data) for data in damaged]
    assert 0.1 < np.mean([len(result) == 1 for result in found]) < 0.9


def test_a_reduction_is_refused_where_the_picture_is_and_for_the_same_reason() -> None:
    reduced = 0
    for data in damaged_jpegs():
        whole = outcome(data)
        if len(whole) == 1:
            with pytest.raises(ImageError, match=re.escape(whole[0])):
                decode_reduced(data, 8)
            with pytest.raises(ImageError, match=re.escape(whole[0])):
                decode_to_show(data, 8)
            continue
        pixels, size = decode_reduced(data, 8)
        assert (*size, 3) == whole[0]
        assert min(pixels.shape[:2]) >= min(8, *size)
        reduced += pixels.shape[0] < size[0]
    assert reduced > 20


@pytest.mark.parametrize(
    ("size", "largest", "side"),
    [((500, 375), 96, 250), ((375, 500), 96, 250), ((500, 375), 384, 500), ((1600, 900), 96, 200)],
)
def test_a_picture_to_show_keeps_twice_the_side_of_its_thumbnail(
    size: tuple[int, int], largest: int, side: int
) -> None:
    ramps = np.stack(np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(255, 0, size[1])), axis=-1)
    picture = Image.fromarray(np.dstack([ramps, ramps[..., :1] / 2]).astype(np.uint8))
    buffer = BytesIO()
    picture.save(buffer, "JPEG", quality=90)
    data = buffer.getvalue()
    shown = Image.fromarray(decode_to_show(data, largest))
    assert max(shown.size) == side
    whole = Image.fromarray(decode(data))
    for one in (shown, whole):
        one.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    difference = np.abs(np.asarray(shown, float) - np.asarray(whole, float))
    assert shown.size == whole.size
    assert difference.mean() < 1
    assert difference.max() <= 8


def damaged_jpegs() -> list[bytes]:
    random = np.random.default_rng(5)
    damaged = []
    for data in jpegs() * 8:
        bytes_ = bytearray(data)
        for place in random.integers(2, len(bytes_), random.integers(1, 4)):
            bytes_[place] = random.integers(0, 256)
        damaged += [bytes(bytes_), bytes(bytes_[: random.integers(3, len(bytes_))]), data[:-2], data + b"\0more"]
    return damaged
