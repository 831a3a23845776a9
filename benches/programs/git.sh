# A repository of two thousand commits: made, cloned, packed again and checked.
# needs: git awk cksum
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git init -q --bare "$folder/made"
awk 'BEGIN {
    for (commit = 1; commit <= 2000; commit++) {
        printf "commit refs/heads/main\ncommitter a <a@example.org> %d +0000\ndata 6\nchange\n", 1e9 + commit
        text = ""
        for (line = 0; line < 200; line++)
            text = text sprintf("%d %d\n", line, (commit > line) ? int(commit / (line + 1)) : 0)
        printf "M 100644 inline file%d\ndata %d\n%s\n", commit % 50, length(text), text
    }
}' | git -C "$folder/made" fast-import --quiet
git clone -q --no-local --bare "$folder/made" "$folder/clone"
git -C "$folder/clone" gc -q --aggressive --prune=now
git -C "$folder/clone" fsck --full --strict
git -C "$folder/clone" log --stat main | cksum
