import { Badge, Button, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Address } from "../../components/Address.tsx";
import { Drawer } from "../../components/Dialog.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { KeyValues, Note } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { NotSigned } from "../../lib/orders/signing.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { Approval } from "../../lib/wire.ts";
import { useExplorer, useNetwork } from "../../shared/info.ts";
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { approvalQuery, approve, decline } from "./api.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import styles from "./Approvals.module.css";
import { describeLimit, meaningOf, STATUS } from "./words.ts";

interface ApprovalDrawerProps {
  approvalId: string | null;
  /** The list's entry for it. */
  known: Approval | undefined;
  onClose: () => void;
}

/** Opening it does not decide the request: only the two buttons do. */
export function ApprovalDrawer({ approvalId, known, onClose }: ApprovalDrawerProps): ReactNode {
  const query = useQuery({
    ...approvalQuery(approvalId ?? ""),
    enabled: approvalId !== null,
  });
  const approval = query.data ?? known;
  return (
    <Drawer opened={approvalId !== null} onClose={onClose} title="Approval">
      {approval ? (
        <ApprovalDetails approval={approval} />
      ) : (
        <QueryStatus query={query} what="the approval" failed="The approval could not be loaded">
          <Skeleton shape="title" />
          <Skeleton count={8} />
        </QueryStatus>
      )}
    </Drawer>
  );
}

function ApprovalDetails({ approval }: { approval: Approval }): ReactNode {
  const status = STATUS[approval.status];
  const rights = useRights();
  const { member } = useOwner();
  // An approver of a team may allow one payment, a recovery wallet may not.
  const mayDecide = rights === "all" || (member !== null && rights !== "read");
  return (
    <Stack gap="lg">
      <Stack gap="xs">
        <Money amount={approval.amount} size="display" />
        <p>
          <strong>{approval.agentName}</strong> requests permission for this one payment
          {approval.site !== null && ` at ${approval.site}`}.
        </p>
        <Group>
          <Badge color={status.color}>{status.label}</Badge>
          <Text span c="dimmed" size="sm">
            <TimeAgo label="requested" iso={approval.createdAt} />
          </Text>
        </Group>
        <Text span c="dimmed" size="sm">
          {meaningOf(approval)}
        </Text>
      </Stack>
      <Note color="yellow">
        <strong>Why it was refused</strong>
        <p>{approval.denial.detail}</p>
      </Note>
      {approval.reason !== null && (
        <Stack gap="xs">
          <h3>Reason from the agent</h3>
          <blockquote className={styles.words}>{approval.reason}</blockquote>
          <Text span c="dimmed" size="sm">
            This text may come from a third party. Check the payee and the amount.
          </Text>
        </Stack>
      )}
      {mayDecide && <Decide approval={approval} />}
      <Facts approval={approval} />
    </Stack>
  );
}

function Decide({ approval }: { approval: Approval }): ReactNode {
  const options = { onSettled: invalidate.afterApproval };
  const allow = useMutation({ mutationFn: () => approve(approval), ...options });
  const refuse = useMutation({ mutationFn: () => decline(approval.id), ...options });
  const failure = [allow.error, refuse.error].find(
    (error) => error !== null && !(error instanceof NotSigned),
  );
  const isOpen = approval.status === "open";
  if (!isOpen && approval.status !== "granted") return null;
  return (
    <Stack gap="sm">
      {isOpen && (
        <Text span c="dimmed" size="sm">
          To allow it, sign once for exactly this payee and amount. The agent may then pay within an
          hour. Your rules do not change.
        </Text>
      )}
      {failure && <ErrorNotice title="The decision was not saved" error={failure} />}
      <Group>
        {isOpen && (
          <PendingButton
            variant="filled"
            disabled={refuse.isPending}
            pending={allow.isPending && "Waiting for your signature…"}
            onClick={() => {
              refuse.reset();
              allow.mutate();
            }}
          >
            Allow once
          </PendingButton>
        )}
        <PendingButton
          variant={isOpen ? "default" : "filled"}
          color={isOpen ? undefined : "red"}
          disabled={allow.isPending}
          pending={refuse.isPending && (isOpen ? "Declining…" : "Revoking…")}
          onClick={() => {
            allow.reset();
            refuse.mutate();
          }}
        >
          {isOpen ? "Decline" : "Revoke"}
        </PendingButton>
      </Group>
    </Stack>
  );
}

function Facts({ approval }: { approval: Approval }): ReactNode {
  const network = useNetwork(approval.network);
  const explorer = useExplorer(approval.network);
  const { policy, rule } = approval.denial;
  const isLive = approval.status === "open" || approval.status === "granted";
  return (
    <Stack>
      <KeyValues
        rows={[
          ["To", <Address key="to" value={approval.payee} full explorerUrl={explorer} />],
          approval.site !== null && ["Site", <code key="site">{approval.site}</code>],
          approval.url !== null && ["URL", <code key="url">{approval.url}</code>],
          ["Network", network?.name ?? approval.network],
          approval.memo !== null && approval.memo !== "" && ["Memo", approval.memo],
          /limit|per_hour/.test(rule) && ["Limit", describeLimit(policy)],
          isLive && [
            approval.status === "open" ? "Decide before" : "May pay until",
            <span key="ends">
              {formatDateTime(approval.expiresAt)}, <TimeUntil iso={approval.expiresAt} />
            </span>,
          ],
          ["Requested", formatDateTime(approval.createdAt)],
          approval.decidedAt !== null && ["Decided", formatDateTime(approval.decidedAt)],
        ]}
      />
      <Group>
        {approval.paymentId !== null && (
          <Button component={Link} to={`/agents/${approval.agentId}?payment=${approval.paymentId}`}>
            View payment{" "}
          </Button>
        )}
        <Button component={Link} to={`/agents/${approval.agentId}/rules`} variant="subtle">
          View the agent&apos;s rules{" "}
        </Button>
      </Group>
    </Stack>
  );
}
