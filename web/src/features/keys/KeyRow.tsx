import { Badge, Button, Group } from "@mantine/core";
import type { ReactNode } from "react";
import { AccessRow } from "../../components/AccessRow.tsx";
import { TimeAgo, TimeUntil, useNowMs } from "../../components/RelativeTime.tsx";
import type { ApiKey } from "../../lib/wire.ts";
import { NotForViewers, OwnerOnly } from "../../shared/session/OwnerOnly.tsx";

interface KeyRowProps {
  apiKey: ApiKey;
  isReadOnly: boolean;
  onRotate: () => void;
  onRevoke: () => void;
}

export function KeyRow({ apiKey, isReadOnly, onRotate, onRevoke }: KeyRowProps): ReactNode {
  const { label, lastUsedAt, expiresAt, revokedAt, rotatedToId } = apiKey;
  const now = useNowMs();
  const isExpired = expiresAt !== null && Date.parse(expiresAt) <= now;
  const isDead = revokedAt !== null || isExpired;
  const isRotated = rotatedToId !== null && !isDead;
  const name = label === "" ? "Unnamed key" : label;
  return (
    <AccessRow
      name={name}
      detail={
        <code>
          {apiKey.prefix}…{apiKey.last4}
        </code>
      }
      badge={
        revokedAt !== null ? (
          <Badge>Revoked</Badge>
        ) : isExpired ? (
          <Badge color="red">Expired</Badge>
        ) : isRotated ? (
          <Badge color="yellow">Being replaced</Badge>
        ) : (
          <Badge color="green">Active</Badge>
        )
      }
      times={
        <>
          <span>
            <TimeAgo label="Used" iso={lastUsedAt} none="Never used" />
          </span>{" "}
          {revokedAt === null && (
            <span>
              {isExpired ? (
                <TimeAgo label="Ended" iso={expiresAt} />
              ) : (
                <TimeUntil label="Ends" iso={expiresAt} />
              )}
            </span>
          )}{" "}
          <span>
            <TimeAgo label="Revoked" iso={revokedAt} />
          </span>
        </>
      }
    >
      {!isDead && !isReadOnly && (
        <Group>
          {!isRotated && (
            <OwnerOnly>
              <Button size="xs" onClick={onRotate}>
                Rotate<span className="sr-only"> {name}</span>
              </Button>
            </OwnerOnly>
          )}
          <NotForViewers>
            <Button size="xs" onClick={onRevoke}>
              Revoke<span className="sr-only"> {name}</span>
            </Button>
          </NotForViewers>
        </Group>
      )}
    </AccessRow>
  );
}
