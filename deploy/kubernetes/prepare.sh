# Run before the server starts, in each pod: settings into the home, and a first token if the store has none.
set -eu
umask 077
folder=$(dirname "$0")
mkdir -p "$HOLDPROOF_HOME/config"
cp "$folder/config.yaml" "$HOLDPROOF_HOME/config/config.yaml"
# A store that is not there yet has no tokens either: creating the first one creates it.
if ! holdproof tokens list --json 2>/dev/null | grep -q '"token_id"'; then
  holdproof tokens create ops --json >"$HOLDPROOF_HOME/first-token"
fi
