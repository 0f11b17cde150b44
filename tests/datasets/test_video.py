import pickle
import tracemalloc
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmbound import InvalidInput
from firmbound.datasets.clips import BrokenClip, FrameOptions, read_frames
from firmbound.datasets.video import Clip, find_clips

SIZE = (64, 48)


def write_clip(path, pictures, *, codec="rawvideo", pixels="bgr24"):
    """A clip of these (H, W, 3) pictures; raw ones come back to the bit."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = pixels
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def grey(levels):
    return [np.full((SIZE[1], SIZE[0], 3), level, dtype=np.uint8) for level in levels]


@pytest.fixture(scope="module")
def ramp(tmp_path_factory):
    """Frame i is grey of level 10 i, i = 0..19."""
    return write_clip(tmp_path_factory.mktemp("clips") / "ramp.avi", grey(range(0, 200, 10)))


@pytest.fixture(scope="module")
def moving(tmp_path_factory):
    """Sixty frames of noise, which MPEG-4 cannot make small."""
    noise = np.random.default_rng(0).integers(0, 256, (60, 48, 64, 3), dtype=np.uint8)
    return write_clip(tmp_path_factory.mktemp("clips") / "moving.avi", list(noise), codec="mpeg4", pixels="yuv420p")


def touch(root, *names):
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return root


def names(clips):
    return [(clip.path.name, clip.label, clip.group) for clip in clips]


class TestFrames:
    @given(frames=st.integers(1, 50), every=st.integers(1, 25))
    def test_come_in_order_and_begin_again(self, ramp, frames, every):
        read = read_frames(ramp, FrameOptions(frames, every, resize=None, crop=None))
        taken = np.arange(0, 20, every)
        assert read.shape == (frames, 48, 64, 3)
        assert read.dtype == np.uint8
        levels = 10 * np.resize(taken, frames)
        assert np.array_equal(read, np.broadcast_to(levels[:, None, None, None], read.shape))

    def test_are_red_green_blue_and_cut_in_the_middle(self, tmp_path, random):
        pictures = random.integers(0, 256, (3, 48, 64, 3), dtype=np.uint8)
        clip = write_clip(tmp_path / "noise.avi", list(pictures))
        assert np.array_equal(read_frames(clip, FrameOptions(3, resize=None, crop=None)), pictures)
        cut = read_frames(clip, FrameOptions(3, resize=None, crop=20))
        assert np.array_equal(cut, pictures[:, 14:34, 22:42])

    @pytest.mark.parametrize(("resize", "crop", "shape"), [(24, None, (24, 32)), (96, 80, (80, 80)), (7, 7, (7, 7))])
    def test_are_scaled_by_the_shorter_side(self, ramp, resize, crop, shape):
        read = read_frames(ramp, FrameOptions(2, resize=resize, crop=crop))
        assert read.shape == (2, *shape, 3)
        assert set(np.unique(read[1])) == {10}

    def test_scaling_keeps_places(self, tmp_path):
        picture = np.zeros((48, 64, 3), dtype=np.uint8)
        picture[:, :32, 0], picture[:24, :, 2] = 200, 100
        clip = write_clip(tmp_path / "quarters.avi", [picture])
        small = read_frames(clip, FrameOptions(1, resize=24, crop=None))[0]
        assert small[2, 2].tolist() == [200, 0, 100]
        assert small[-3, -3].tolist() == [0, 0, 0]

    def test_upright_clips_too(self, tmp_path):
        clip = write_clip(tmp_path / "upright.avi", [np.full((80, 40, 3), 9, dtype=np.uint8)])
        assert read_frames(clip, FrameOptions(2, resize=20, crop=None)).shape == (2, 40, 20, 3)

    def test_are_the_same_each_time(self, moving):
        options = FrameOptions(70, resize=40, crop=32)
        assert np.array_equal(read_frames(moving, options), read_frames(moving, options))

    def test_of_a_compressed_clip_are_all_there(self, moving):
        read = read_frames(moving, FrameOptions(120, resize=None, crop=None))
        assert np.array_equal(read[:60], read[60:])
        assert not np.array_equal(read[58], read[59])

    def test_no_more_is_held_than_asked_for(self, tmp_path):
        clip = write_clip(tmp_path / "long.avi", [np.zeros((240, 320, 3), np.uint8)] * 300)
        tracemalloc.start()
        read_frames(clip, FrameOptions(10, every=25, resize=120, crop=100))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * 10 * 100 * 100 * 3 + 1_000_000

    def test_no_more_is_decoded_than_needed(self, moving, tmp_path):
        """Damage after the last frame that is used does not matter; before, it does."""
        whole = moving.read_bytes()
        clip = tmp_path / "cut.avi"
        clip.write_bytes(whole[: len(whole) // 2])
        few = FrameOptions(10, resize=None, crop=None)
        assert np.array_equal(read_frames(clip, few), read_frames(moving, few))
        with pytest.raises(BrokenClip, match=r"cut\.avi"):
            read_frames(clip, FrameOptions(60, resize=None, crop=None))


class TestBrokenClips:
    @pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.6, 0.8])
    @pytest.mark.parametrize("suffix", [".avi", ".mp4", ".mkv"])
    def test_cut_off(self, tmp_path, suffix, share, random):
        pictures = random.integers(0, 256, (40, 48, 64, 3), dtype=np.uint8)
        clip = write_clip(tmp_path / f"clip{suffix}", list(pictures), codec="mpeg4", pixels="yuv420p")
        whole = clip.read_bytes()
        assert len(read_frames(clip, FrameOptions(60, resize=None, crop=None))) == 60
        clip.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(BrokenClip, match="cannot be read") as caught:
            read_frames(clip, FrameOptions(60, resize=None, crop=None))
        assert caught.value.path == str(clip)
        assert caught.value.reason

    def test_overwritten_in_the_middle(self, moving, tmp_path, random):
        damaged = bytearray(moving.read_bytes())
        middle = slice(len(damaged) // 3, len(damaged) // 2)
        damaged[middle] = random.bytes(middle.stop - middle.start)
        (tmp_path / "damaged.avi").write_bytes(damaged)
        with pytest.raises(BrokenClip, match=r"damaged\.avi"):
            read_frames(tmp_path / "damaged.avi", FrameOptions(60))

    def test_no_clip_at_all(self, tmp_path):
        (tmp_path / "text.avi").write_text("not a clip\n" * 100)
        (tmp_path / "folder.avi").mkdir()
        for name in ("text.avi", "folder.avi", "none.avi"):
            with pytest.raises(BrokenClip, match=name):
                read_frames(tmp_path / name, FrameOptions(2))

    def test_sound_only(self, tmp_path):
        file = tmp_path / "sound.mkv"
        with av.open(str(file), "w") as container:
            stream = container.add_stream("pcm_s16le", rate=8_000, layout="mono")
            sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
            sound.sample_rate = 8_000
            container.mux(stream.encode(sound))
            container.mux(stream.encode())
        with pytest.raises(BrokenClip, match="no video stream"):
            read_frames(file, FrameOptions(2))

    def test_a_playlist_in_disguise_opens_nothing_else(self, ramp, tmp_path):
        (tmp_path / "list.avi").write_text(f"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/{ramp.name}\n#EXT-X-ENDLIST\n")
        with pytest.raises(BrokenClip):
            read_frames(tmp_path / "list.avi", FrameOptions(2))

    def test_names_that_look_like_addresses_are_files(self, ramp, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("http:x.avi").write_bytes(ramp.read_bytes())
        assert len(read_frames(Path("http:x.avi"), FrameOptions(2))) == 2

    def test_metadata_that_is_no_text_does_not_matter(self, tmp_path):
        with av.open(str(tmp_path / "named.avi"), "w") as container:
            container.metadata["title"] = "XXXXXXXX"
            stream = container.add_stream("rawvideo", rate=25)
            stream.width, stream.height, stream.pix_fmt = (*SIZE, "bgr24")
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey([7])[0])))
        whole = (tmp_path / "named.avi").read_bytes()
        assert whole.count(b"XXXXXXXX") == 1
        (tmp_path / "named.avi").write_bytes(whole.replace(b"XXXXXXXX", b"\xe9\xff\xfe\xe8abcd"))
        assert (read_frames(tmp_path / "named.avi", FrameOptions(1, resize=None, crop=None)) == 7).all()

    def test_the_error_is_whole_in_another_process(self):
        error = pickle.loads(pickle.dumps(BrokenClip(Path("a/b.avi"), "it has no frame")))
        assert (error.path, error.reason) == ("a/b.avi", "it has no frame")

    def test_a_crop_larger_than_the_frames(self, ramp):
        with pytest.raises(InvalidInput, match=r"crop.*ramp\.avi of 64 x 48"):
            read_frames(ramp, FrameOptions(1, resize=None, crop=50))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": 0}, "frames"),
        ({"frames": 2.0}, "frames"),
        ({"frames": True}, "frames"),
        ({"frames": 5, "every": 0}, "every"),
        ({"frames": 5, "resize": -1}, "resize"),
        ({"frames": 5, "crop": 0}, "crop"),
        ({"frames": 5, "resize": 100, "crop": 101}, "at most `resize`"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        FrameOptions(**options)


class TestUCF101:
    @pytest.fixture
    def data(self, tmp_path):
        for label in ("Archery", "HandstandPushups"):
            spelled = label.replace("stand", "Stand")  # as in the data set
            touch(tmp_path / "UCF-101", *(f"{label}/v_{spelled}_g0{g}_c01.avi" for g in (1, 2, 8, 9)))
        lists = tmp_path / "ucfTrainTestlist"
        lists.mkdir()
        for number, tested in ((1, (1, 2)), (2, (8, 9))):
            both = {"test": [], "train": []}
            for file in sorted((tmp_path / "UCF-101").rglob("*.avi")):
                side = "test" if any(f"_g0{g}_" in file.name for g in tested) else "train"
                both[side].append(f"{file.parent.name}/{file.name}" + (" 1" if side == "train" else ""))
            for side, lines in both.items():
                (lists / f"{side}list0{number}.txt").write_text("\r\n".join(lines) + "\r\n\r\n")
        return tmp_path

    def test_official_split(self, data):
        parts = find_clips("ucf101", data / "UCF-101")
        assert list(parts) == ["train", "test"]
        assert names(parts["train"]) == [
            ("v_Archery_g08_c01.avi", "Archery", "Archery_g08"),
            ("v_Archery_g09_c01.avi", "Archery", "Archery_g09"),
            ("v_HandStandPushups_g08_c01.avi", "HandstandPushups", "HandstandPushups_g08"),
            ("v_HandStandPushups_g09_c01.avi", "HandstandPushups", "HandstandPushups_g09"),
        ]
        other = find_clips("ucf101", str(data / "UCF-101"), lists=data / "ucfTrainTestlist", number=2)
        assert other == {"train": parts["test"], "test": parts["train"]}

    def test_lists_inside_the_folder(self, data):
        (data / "ucfTrainTestlist").rename(data / "UCF-101" / "lists")
        assert len(find_clips("ucf101", data / "UCF-101")["test"]) == 4

    def test_clips_that_no_list_names_are_left_out(self, data):
        touch(data / "UCF-101", "Archery/v_Archery_g25_c01.avi", "Archery/._v_Archery_g01_c01.avi", "Archery/notes.txt")
        assert sum(map(len, find_clips("ucf101", data / "UCF-101").values())) == 8

    @pytest.mark.parametrize(
        ("file", "line", "message"),
        [
            ("trainlist01.txt", "Archery v_Archery_g08_c01.avi", r"trainlist01.txt, line 1: 'Archery v"),
            ("testlist01.txt", "Archery/v_Archery_g01_c01", r"testlist01.txt, line 1"),
            ("trainlist01.txt", "Archery/v_Archery_g77_c01.avi 1", "not below .*UCF-101: Archery/v_Archery_g77_c01"),
            ("testlist01.txt", "Archery/v_Archery_g08_c01.avi", "one side; got .*also in train"),
            ("trainlist01.txt", "\udcff", "be text"),
        ],
    )
    def test_bad_lists(self, data, file, line, message):
        old = (data / "ucfTrainTestlist" / file).read_text()
        (data / "ucfTrainTestlist" / file).write_text(f"{line}\n{old}", errors="surrogateescape")
        with pytest.raises(InvalidInput, match=message):
            find_clips("ucf101", data / "UCF-101")

    def test_missing_lists(self, data):
        with pytest.raises(InvalidInput, match=r"trainlist03.txt; got none in or beside .*UCF-101"):
            find_clips("ucf101", data / "UCF-101", number=3)
        (data / "ucfTrainTestlist" / "testlist01.txt").unlink()
        with pytest.raises(InvalidInput, match=r"no file .*testlist01.txt"):
            find_clips("ucf101", data / "UCF-101")
        with pytest.raises(InvalidInput, match=r"lists.*nowhere"):
            find_clips("ucf101", data / "UCF-101", lists=data / "nowhere")

    def test_a_group_on_both_sides(self, data):
        touch(data / "UCF-101", "Archery/v_Archery_g08_c02.avi")
        with (data / "ucfTrainTestlist" / "testlist01.txt").open("a") as file:
            file.write("Archery/v_Archery_g08_c02.avi\n")
        with pytest.raises(InvalidInput, match="Archery_g08 on two sides"):
            find_clips("ucf101", data / "UCF-101")


class TestHMDB51:
    @pytest.fixture
    def data(self, tmp_path):
        lists = tmp_path / "testTrainMulti_7030_splits"
        lists.mkdir()
        for label in ("brush_hair", "wave"):
            lines = []
            for index, film in enumerate(("Alien", "Big_wave_film", "#1_Cleaning")):
                name = f"{film}_{label}_f_nm_np1_fr_goo_{index}.avi"
                touch(tmp_path / "hmdb51", f"{label}/{name}")
                lines.append(f"{name} {(1, 2, 0)[index]} ")
            (lists / f"{label}_test_split1.txt").write_text("\n".join(lines))
        return tmp_path

    def test_official_split(self, data):
        parts = find_clips("hmdb51", data / "hmdb51")
        assert names(parts["train"]) == [
            ("Alien_brush_hair_f_nm_np1_fr_goo_0.avi", "brush_hair", "Alien"),
            ("Alien_wave_f_nm_np1_fr_goo_0.avi", "wave", "Alien"),
        ]
        assert [clip.group for clip in parts["test"]] == ["Big_wave_film"] * 2

    @pytest.mark.parametrize("line", ["clip.avi", "clip.avi 3", "clip 1", "1"])
    def test_bad_lists(self, data, line):
        (data / "testTrainMulti_7030_splits" / "wave_test_split1.txt").write_text(line)
        with pytest.raises(InvalidInput, match=r"wave_test_split1.txt, line 1"):
            find_clips("hmdb51", data / "hmdb51")

    def test_missing_clips_and_lists(self, data):
        touch(data / "hmdb51", "walk/walk.avi")
        with pytest.raises(InvalidInput, match=r"no file .*walk_test_split1.txt"):
            find_clips("hmdb51", data / "hmdb51")
        lists = data / "testTrainMulti_7030_splits"
        (lists / "walk_test_split1.txt").write_text("walk.avi 1\nrun.avi 2\n")
        with pytest.raises(InvalidInput, match=r"1 clips of .*walk/run.avi"):
            find_clips("hmdb51", data / "hmdb51", lists=lists)

    def test_classes_must_be_the_same(self, data):
        name = "Big_wave_film_wave_f_nm_np1_fr_goo_1.avi"
        (data / "testTrainMulti_7030_splits" / "wave_test_split1.txt").write_text(f"{name} 1")
        with pytest.raises(InvalidInput, match="hmdb51 with wave in one of train and test only"):
            find_clips("hmdb51", data / "hmdb51")


class TestSiW:
    def test_without_folders(self, tmp_path):
        touch(tmp_path, "live/3/003-1-1-1-1.mov", "spoof/003-1-2-1-1.MOV", "x/012_2_3_4_1.mp4", "x/003-1-1-1-1.face")
        parts = find_clips("siw", tmp_path)
        assert {part: names(clips) for part, clips in parts.items()} == {
            "all": [
                ("003-1-1-1-1.mov", "live", "003"),
                ("003-1-2-1-1.MOV", "spoof", "003"),
                ("012_2_3_4_1.mp4", "spoof", "012"),
            ]
        }

    def test_folders_are_parts(self, tmp_path):
        touch(
            tmp_path,
            *(f"SiW/{part}/{s}-1-{kind}-1-1.mov" for part, s in (("TRAIN", 1), ("Test", 2)) for kind in (1, 3)),
        )
        parts = find_clips("siw", tmp_path)
        assert {part: {clip.group for clip in clips} for part, clips in parts.items()} == {
            "train": {"001"},
            "test": {"002"},
        }

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            (["003-1-1-1.mov"], r"subject-sensor-type-medium-session; got .*003-1-1-1.mov"),
            (["003-1-1-1-1.mov"], "two classes"),
            (["Train/1-1-1-1-1.mov", "Train/1-1-2-1-1.mov"], "with train only"),
            (["Train/1-1-1-1-1.mov", "1-1-2-1-1.mov"], "1-1-2-1-1.mov outside"),
            ([f"{p}/{s}-1-{k}-1-1.mov" for p in ("Train", "Test") for s in ("7", "007") for k in (1, 2)], "007 on two"),
        ],
    )
    def test_bad_folders(self, tmp_path, files, message):
        touch(tmp_path, *files)
        with pytest.raises(InvalidInput, match=message):
            find_clips("siw", tmp_path)


class TestFolders:
    def test_classes(self, tmp_path):
        touch(
            tmp_path, "train/b.mp4", "car/a.MKV", "car/c.webm", "car/v_X_g03_c01.avi", "car/F_car_f_nm_np1_fr_goo_1.avi"
        )
        parts = find_clips("folders", tmp_path)  # a train is a vehicle too
        assert {clip.label for clip in parts["all"]} == {"train", "car"}
        assert [clip.group for clip in parts["all"]] == ["F", "car/a", "car/c", "car_g03", "train/b"]
        assert parts["all"][-1] == Clip(tmp_path / "train" / "b.mp4", "train", "train/b")

    def test_parts(self, tmp_path):
        touch(tmp_path, *(f"{part}/{k}/{part}.avi" for part in ("test", "Train", "validation") for k in "ab"))
        parts = find_clips("folders", tmp_path)
        assert list(parts) == ["train", "validation", "test"]
        assert all(len(clips) == 2 for clips in parts.values())

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            ([], "without any"),
            (["a/notes.txt"], "without any"),
            (["a/1.avi", "a/2.avi"], "two classes at least; got .* with a in all"),
            (["1.avi"], r"class/clip.*; got .*1\.avi"),
            (["val/a/1.avi", "val/b/1.avi"], r"class/clip"),
            (["train/a/1.avi", "a/1.avi"], "outside"),
            (["train/a/1.avi", "train/b/1.avi"], "with train only"),
            (["train/a/1.avi", "train/b/1.avi", "test/a/2.avi", "test/c/2.avi"], "with b, c in one of train and test"),
            (["train/a/1.avi", "test/a/2.avi"], "two classes"),
        ],
    )
    def test_bad_folders(self, tmp_path, files, message):
        touch(tmp_path, *files)
        with pytest.raises(InvalidInput, match=message) as caught:
            find_clips("folders", tmp_path)
        assert str(tmp_path) in str(caught.value)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"layout": "kinetics"}, "layout.*ucf101"),
            ({"path": "nowhere"}, "nowhere, which is none"),
            ({"lists": "somewhere"}, "left out for folders"),
            ({"number": 0}, "number"),
        ],
    )
    def test_bad_arguments(self, tmp_path, arguments, message):
        touch(tmp_path, "a/1.avi", "b/1.avi")
        with pytest.raises(InvalidInput, match=message):
            find_clips(**({"layout": "folders", "path": tmp_path} | arguments))
