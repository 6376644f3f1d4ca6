"""What files in RAM add to what all files keep (`test_files`)."""

from threading import Thread

from millstream.storage.files.memory import MemoryFiles


def test_another_thread_may_read_while_a_file_grows() -> None:
    file = MemoryFiles().open("f", create=True)
    wrong: list[bytes] = []

    def read() -> None:
        while (size := file.size()) < 200_000:
            data = file.read(max(0, size - 100), 100)
            if data.strip(b"x"):
                wrong.append(data)

    reader = Thread(target=read)
    reader.start()
    for at in range(0, 200_000, 50):
        file.write(at, [b"x" * 50])
    reader.join()

    assert wrong == []


def test_there_is_no_descriptor_to_send_from() -> None:
    assert MemoryFiles().open("f", create=True).fileno() == -1


def test_closing_a_file_keeps_it() -> None:
    files = MemoryFiles()
    file = files.open("f", create=True)
    file.write(0, [b"kept"])

    file.close()

    assert files.open("f").read(0, 4) == b"kept"


def test_two_trees_share_nothing() -> None:
    MemoryFiles().open("f", create=True)

    assert MemoryFiles().list("") == []
