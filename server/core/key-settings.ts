/** Where the keys are kept: in the environment, in a KMS, or in a separate custody process. */
import { isKmsKeyId, KMS_KEY_HINT, readMasterKeys, type MasterKey } from "./master-keys.ts";
import { listed } from "./network-settings.ts";

export interface KeySettings {
  masterKeys: MasterKey[];
  masterKeyActive: string;
  relayerPrivateKeys: `0x${string}`[];
  /** Keys of gas-paying accounts (relayers) in a KMS. */
  relayerKmsKeys: string[];
  /** How long a data key that a KMS unwrapped may be cached; 0: not at all. */
  kmsCacheMs: number;
  /** The socket of the custody process, which holds the master keys. */
  custodySocket: string | undefined;
}

export interface KeyEnvironment {
  MASTER_KEYS?: string;
  MASTER_KEY_ACTIVE?: string;
  RELAYER_PRIVATE_KEYS?: string;
  RELAYER_KMS_KEYS?: string;
  KMS_CACHE_SECONDS: string;
  CUSTODY_SOCKET?: string;
}

/** The service, or the custody process, which holds the master keys and signs only for agents' wallets. */
export type Part = "service" | "custody";

/** The longest socket path that every system supports. */
const MAX_SOCKET_PATH = 100;

export function readKeySettings(
  env: KeyEnvironment,
  { part, isLocal }: { part: Part; isLocal: boolean },
  problems: string[],
): KeySettings {
  const custodySocket = env.CUSTODY_SOCKET;
  const isElsewhere = part === "service" && custodySocket !== undefined;
  if (custodySocket !== undefined && !/^\/[^\0]+$/.test(custodySocket))
    problems.push("CUSTODY_SOCKET must be an absolute path");
  if (Buffer.byteLength(custodySocket ?? "") > MAX_SOCKET_PATH)
    problems.push(`CUSTODY_SOCKET must have at most ${MAX_SOCKET_PATH} bytes`);
  if (part === "custody" && custodySocket === undefined)
    problems.push(
      "CUSTODY_SOCKET is missing (the socket on which the service requests signatures)",
    );
  if (isElsewhere && isLocal)
    problems.push("CUSTODY_SOCKET is set, but PURSER_MODE=local keeps its keys in the service");
  if (isElsewhere && env.MASTER_KEYS !== undefined)
    problems.push(
      "MASTER_KEYS is set beside CUSTODY_SOCKET: only the custody process may have master keys",
    );
  const masterKeys = readMasterKeys(
    isElsewhere ? undefined : env.MASTER_KEYS,
    isLocal || isElsewhere,
    problems,
  );
  const masterKeyActive = env.MASTER_KEY_ACTIVE ?? masterKeys[0]?.kid ?? "";
  if (masterKeys.length > 0 && !masterKeys.some((key) => key.kid === masterKeyActive))
    problems.push(`MASTER_KEY_ACTIVE names "${masterKeyActive}", which is not in MASTER_KEYS`);
  return {
    masterKeys,
    masterKeyActive,
    ...(part === "service"
      ? readRelayers(env, isLocal, problems)
      : { relayerPrivateKeys: [], relayerKmsKeys: [] }),
    kmsCacheMs: Number(env.KMS_CACHE_SECONDS) * 1_000,
    custodySocket,
  };
}

function readRelayers(
  env: KeyEnvironment,
  isLocal: boolean,
  problems: string[],
): Pick<KeySettings, "relayerPrivateKeys" | "relayerKmsKeys"> {
  const keys = listed(env.RELAYER_PRIVATE_KEYS);
  const kmsKeys = listed(env.RELAYER_KMS_KEYS);
  if (keys.length + kmsKeys.length === 0 && !isLocal)
    problems.push(
      "RELAYER_PRIVATE_KEYS is missing (the account that pays the gas; or set RELAYER_KMS_KEYS)",
    );
  if (keys.some((key) => !/^0x[0-9a-fA-F]{64}$/.test(key)))
    problems.push("RELAYER_PRIVATE_KEYS must list 0x-prefixed 32-byte keys");
  if (new Set(keys.map((key) => key.toLowerCase())).size !== keys.length)
    problems.push("RELAYER_PRIVATE_KEYS lists a key twice");
  if (kmsKeys.length > 0 && isLocal)
    problems.push("RELAYER_KMS_KEYS is set, but PURSER_MODE=local creates its own accounts");
  for (const key of kmsKeys)
    if (!isKmsKeyId(key)) problems.push(`RELAYER_KMS_KEYS: "${key}" ${KMS_KEY_HINT}`);
  if (new Set(kmsKeys).size !== kmsKeys.length) problems.push("RELAYER_KMS_KEYS lists a key twice");
  return { relayerPrivateKeys: keys as `0x${string}`[], relayerKmsKeys: kmsKeys };
}
