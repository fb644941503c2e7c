import type { ReactNode } from "react";
import styles from "../../components/AccessRows.module.css";
import { Badge } from "../../components/Badge.tsx";
import { Button } from "../../components/Button.tsx";
import { Row } from "../../components/Layout.tsx";
import { TimeAgo, TimeUntil, useNowMs } from "../../components/RelativeTime.tsx";
import type { ApiKey } from "../../lib/wire.ts";

interface KeyRowProps {
  apiKey: ApiKey;
  isReadOnly: boolean;
  onRotate: () => void;
  onRevoke: () => void;
}

export function KeyRow({ apiKey, isReadOnly, onRotate, onRevoke }: KeyRowProps): ReactNode {
  const now = useNowMs();
  const isExpired = apiKey.expiresAt !== null && Date.parse(apiKey.expiresAt) <= now;
  const isDead = apiKey.revokedAt !== null || isExpired;
  const isRotated = apiKey.rotatedToId !== null && !isDead;
  const name = apiKey.label === "" ? "Unnamed key" : apiKey.label;
  return (
    <li className={styles.row}>
      <div className={styles.what}>
        <strong>{name}</strong>
        <code>
          {apiKey.prefix}…{apiKey.last4}
        </code>
      </div>
      <div>
        {apiKey.revokedAt !== null ? (
          <Badge>Revoked</Badge>
        ) : isExpired ? (
          <Badge tone="bad">Expired</Badge>
        ) : isRotated ? (
          <Badge tone="warn">Being replaced</Badge>
        ) : (
          <Badge tone="ok">Active</Badge>
        )}
      </div>
      <KeyTimes apiKey={apiKey} isExpired={isExpired} />
      <div className={styles.actions}>
        {!isDead && !isReadOnly && (
          <Row>
            {!isRotated && (
              <Button size="small" onClick={onRotate}>
                Rotate<span className="sr-only"> {name}</span>
              </Button>
            )}
            <Button size="small" onClick={onRevoke}>
              Revoke<span className="sr-only"> {name}</span>
            </Button>
          </Row>
        )}
      </div>
    </li>
  );
}

function KeyTimes({ apiKey, isExpired }: { apiKey: ApiKey; isExpired: boolean }): ReactNode {
  return (
    <div className={styles.times}>
      <span>
        {apiKey.lastUsedAt === null ? (
          "Never used"
        ) : (
          <>
            Used <TimeAgo iso={apiKey.lastUsedAt} />
          </>
        )}
      </span>
      {apiKey.expiresAt !== null && apiKey.revokedAt === null && (
        <span>
          {isExpired ? (
            <>
              Ended <TimeAgo iso={apiKey.expiresAt} />
            </>
          ) : (
            <>
              Ends <TimeUntil iso={apiKey.expiresAt} />
            </>
          )}
        </span>
      )}
      {apiKey.revokedAt !== null && (
        <span>
          Revoked <TimeAgo iso={apiKey.revokedAt} />
        </span>
      )}
    </div>
  );
}
