import { EmptyState, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Drawer } from "../../components/Dialog.tsx";
import { ChevronIcon } from "../../components/icons.tsx";
import { Note, Section } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeUntil } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { shortAddress } from "../../lib/address.ts";
import { useOpenItem } from "../../lib/use-parameter.ts";
import type { WaitingOrder } from "../../lib/wire.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { readingQuery } from "./api.ts";
import { waitingQuery } from "./queries.ts";
import type { Outcome } from "./use-decide.ts";
import styles from "./Teams.module.css";
import { Progress, WaitingDetails } from "./WaitingDetails.tsx";

/** Orders of the team that wait for signatures; for one's own account, invitations to teams. */
export function WaitingOrders({ onDone }: { onDone: (outcome: Outcome) => void }): ReactNode {
  const { member } = useOwner();
  const query = useQuery(waitingQuery);
  const { openId, open, close } = useOpenItem("order");
  const opened = query.data?.find(({ id }) => id === openId);
  return (
    <Stack gap="lg">
      {openId !== null && query.data && !opened && (
        <Note>
          This order does not wait any more: it was carried out, withdrawn, or its time ended.
        </Note>
      )}
      <Section flush title={member ? "Orders" : "Invitations"}>
        <QueryStatus query={query} what="orders" failed="The orders could not be loaded">
          <Skeleton shape="row" count={3} />
        </QueryStatus>
        {query.data?.length === 0 && (
          <EmptyState
            title={member ? "Nothing waits" : "No invitations"}
            description={
              member
                ? "What needs the signatures of several members appears here until all have signed."
                : "When a team adds you, its new list of members appears here. You accept by signing it."
            }
          />
        )}
        {query.data && query.data.length > 0 && (
          <ul>
            {query.data.map((waiting) => (
              <Row
                key={waiting.id}
                waiting={waiting}
                onOpen={() => {
                  open(waiting.id);
                }}
              />
            ))}
          </ul>
        )}
      </Section>
      <Drawer
        opened={opened !== undefined}
        onClose={close}
        title={member ? "Waiting order" : "Invitation"}
      >
        {opened && (
          <WaitingDetails
            key={opened.id}
            waiting={opened}
            onDone={(outcome) => {
              close();
              onDone(outcome);
            }}
          />
        )}
      </Drawer>
    </Stack>
  );
}

function Row({ waiting, onOpen }: { waiting: WaitingOrder; onOpen: () => void }): ReactNode {
  const reading = useQuery(readingQuery(waiting));
  return (
    <li className={`list-row ${styles.order}`}>
      <button
        type="button"
        className={`row-link ${styles.open}`}
        aria-haspopup="dialog"
        onClick={onOpen}
      >
        {reading.data?.title ?? waiting.kind}
      </button>
      <Text c="dimmed" size="sm">
        {waiting.team.name} · asked by {shortAddress(waiting.by)} ·{" "}
        <TimeUntil label="ends" iso={waiting.expiresAt} />
      </Text>
      <div>
        <Progress waiting={waiting} />
      </div>
      <span className={styles.opens}>
        <ChevronIcon size={16} />
      </span>
    </li>
  );
}
