# A file of three hundred functions, compiled with optimisation.
# needs: gcc awk cksum
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
awk 'BEGIN {
    for (f = 0; f < 300; f++) {
        printf "int f%d(int *a, int n)\n{\n    int sum = %d;\n", f, f
        printf "    for (int i = 0; i < n; i++)\n        switch (a[i] %% 7) {\n"
        for (c = 0; c < 7; c++)
            printf "        case %d: sum = sum * %d + a[(i + %d) %% n]; break;\n", c, f + c + 2, c
        printf "        }\n    return sum;\n}\n"
    }
    print "int main(void) { int a[] = {1, 2, 3}; int sum = 0;"
    for (f = 0; f < 300; f++) printf "sum += f%d(a, 3);\n", f
    print "return sum == 0; }"
}' >"$folder/file.c"
gcc -O2 -o "$folder/program" "$folder/file.c"
"$folder/program"
cksum <"$folder/program"
