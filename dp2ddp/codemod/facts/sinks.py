"""What writes a file: one table of functions and classes of libraries, and how others are told by their looks.

A library need not be installed where a script is converted, and may be one that nobody has heard of. So what is not in
a table is told by its verb and by what it is given: `anything.save(path)`, `lib.write_image(image, path)`,
`lib.open(path, "w")`, `lib.SomethingWriter(path)`.
"""

from __future__ import annotations

import re

from dp2ddp.codemod.facts.tables import of

FUNCTIONS = {  # write the file that they are given the name of
    *of("numpy", "save savez savez_compressed savetxt"),
    *of("matplotlib.pyplot", "savefig imsave"),
    *of("imageio", "imwrite imsave mimsave mimwrite volwrite"),
    *of("imageio.v2", "imwrite imsave mimsave mimwrite volwrite"),
    *("imageio.v3.imwrite", "tifffile.imwrite", "tifffile.imsave", "cv2.imwrite", "skimage.io.imsave"),
    *of("torchvision", "utils.save_image io.write_png io.write_jpeg io.write_video io.write_file"),
    *of("scipy", "misc.imsave io.savemat io.mmwrite io.wavfile.write sparse.save_npz"),
    *of("torch", "onnx.export jit.save export.save hub.download_url_to_file"),
    *(
        "soundfile.write",
        "librosa.output.write_wav",
        "torchaudio.save",
        "nibabel.save",
        "SimpleITK.WriteImage",
    ),
    *("joblib.dump", "sklearn.externals.joblib.dump"),
    *of("safetensors", "torch.save_file torch.save_model numpy.save_file"),
    *("onnx.save", "onnx.save_model", "omegaconf.OmegaConf.save", "faiss.write_index"),
    *("zarr.save", "zarr.save_array", "zarr.save_group", "zarr.copy_all"),
    *of("pyarrow", "parquet.write_table parquet.write_to_dataset feather.write_feather csv.write_csv"),
    *("urllib.request.urlretrieve", "urllib.urlretrieve", "gdown.download", "wget.download"),
    *("trimesh.exchange.export.export_mesh", "open3d.io.write_point_cloud", "open3d.io.write_triangle_mesh"),
}
# These are given an open file, or give back what they would write.
INTO_OPEN_FILES = {
    *of("json", "dump"),
    *of("pickle", "dump"),
    *("simplejson.dump", "ujson.dump", "cPickle.dump", "_pickle.dump", "dill.dump", "cloudpickle.dump"),
    *("marshal.dump", "plistlib.dump", "msgpack.dump", "ast.dump", "toml.dump", "tomli_w.dump"),
    *("yaml.dump", "yaml.safe_dump", "yaml.dump_all", "yaml.safe_dump_all", "torch.export.export"),
    *("torch.autograd.graph.save_on_cpu", "traceback.print_exc", "tqdm.tqdm.write", "tqdm.auto.tqdm.write"),
}
# Words that begin the names of functions and methods. The first are about files, whatever they are given; the others
# only where a path is among their arguments, or a library is given something and nobody asks what comes back
# (`graph.export()`, `pickler.dump(obj)`, `file.write("...")` are none). `ema.store(parameters)` stays in memory.
SAVES = re.compile(
    r"(save|imsave|mimsave|imwrite|mimwrite|volwrite|savefig|savetxt|savez|savemat|mmwrite)(_|[A-Z]|$)"
    r"|to_(csv|excel|pickle|msgpack|parquet|hdf|feather|stata|sql|orc|netcdf|zarr|file|disk|json_file|wav|geojson)$"
    r"|(tofile|extractall|export_chrome_trace|export_stacks|export_memory_timeline|dump_stats)$"
    r"|(makedirs|mkdir|removedirs|rmdir|rmtree|remove|unlink)_p$"  # of path.Path
)
MAY_SAVE = re.compile(
    r"(write|dump|export|to_(json|html|latex|xml|markdown|yaml|dot|image|video|mesh|ply|obj))(_|[A-Z]|$)"
)
# Of autograd and of what remembers its arguments: no files.
NO_SINKS = {
    *("save_for_backward", "save_for_forward", "save_on_cpu", "save_hyperparameters", "saved_tensors"),
    *("write_only", "export_params", "write_line", "writelines", "write_scalar"),
}
TEXT_METHODS = {"write_text", "write_bytes"}  # of a path
PATH_METHODS = {
    *("mkdir", "unlink", "rmdir", "touch", "rename", "replace", "symlink_to", "hardlink_to", "link_to"),
    "chmod",
}
FOLDERS_AND_FILES = {
    *of("os", "makedirs mkdir remove unlink rmdir removedirs rename renames replace symlink link"),
    *of("os", "truncate chmod utime mkfifo"),
    *of("shutil", "rmtree copy copy2 copyfile copytree copymode copystat move make_archive unpack_archive"),
}
PROCESSES = {"os.system", *of("subprocess", "run call check_call check_output getoutput getstatusoutput")}

OPENERS = ("builtins.open", "io.open")
# Handles on files: where the mode stands, its keyword, what is done where none is given.
HANDLES = {
    **dict.fromkeys(
        ("codecs.open", "gzip.open", "bz2.open", "lzma.open", "zipfile.ZipFile", "tarfile.open", "h5py.File"),
        (1, "mode", "r"),
    ),
    **dict.fromkeys(("gzip.GzipFile", "bz2.BZ2File", "lzma.LZMAFile", "wave.open"), (1, "mode", "r")),
    "io.FileIO": (1, "mode", "r"),
    **dict.fromkeys(("tables.open_file", "netCDF4.Dataset", "soundfile.SoundFile"), (1, "mode", "r")),
    "pandas.HDFStore": (1, "mode", "a"),
    **dict.fromkeys(("zarr.open", "zarr.open_group", "zarr.open_array"), (1, "mode", "a")),
    **dict.fromkeys(("zarr.group", "zarr.create"), (None, "mode", "w")),
    **dict.fromkeys(("pandas.ExcelWriter", "pyarrow.parquet.ParquetWriter"), (None, "mode", "w")),
    "matplotlib.backends.backend_pdf.PdfPages": (None, "mode", "w"),
    "torch.package.PackageExporter": (None, "mode", "w"),
}
# Files that are read back while they are written, in ways that only one process can.
READ_AND_WRITTEN = {
    "numpy.memmap": (2, "mode", ""),
    "numpy.lib.format.open_memmap": (1, "mode", ""),
    "shelve.open": (1, "flag", "c"),
    **dict.fromkeys(("dbm.open", "dbm.gnu.open", "dbm.ndbm.open", "dbm.dumb.open"), (1, "flag", "r")),
    "sqlite3.connect": (None, "mode", ""),
    "lmdb.open": (None, "mode", ""),
}
WRITING_CLASS = re.compile(r"[A-Z]\w*Writer$")  # of a library, given a path: `FFmpegWriter(path)`
NO_WRITING_CLASS = ("csv.", "torch.")
DESCRIPTORS = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC")
TEMPORARY = {  # what the ranks have in its place
    "tempfile.mkstemp": "mkstemp_on_rank_zero",
    "tempfile.TemporaryDirectory": "TemporaryDirectoryOnRankZero",
    "tempfile.NamedTemporaryFile": "NamedTemporaryFileOnRankZero",
}
TEMPORARY_NAMES = ("tempfile.mkdtemp", "tempfile.mktemp")
