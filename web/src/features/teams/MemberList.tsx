import { Badge, Button, NativeSelect, Text } from "@mantine/core";
import type { ReactNode } from "react";
import type { Role } from "../../../../packages/rules/src/teams.ts";
import { Address } from "../../components/Address.tsx";
import { isSameAddress } from "../../lib/address.ts";
import type { MemberTerms } from "../../lib/orders/members.ts";
import { signerOf } from "../../lib/session.ts";
import type { Team } from "../../lib/wire.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { accountKind, ROLES } from "./members.ts";
import styles from "./Teams.module.css";

interface MemberListProps {
  members: MemberTerms[];
  /** The list in force. */
  team: Team;
  /** Without it, the list is only shown. */
  onChange?: (members: MemberTerms[]) => void;
}

export function MemberList({ members, team, onChange }: MemberListProps): ReactNode {
  const self = signerOf(useOwner());
  const known = (address: string) =>
    team.members.find((member) => isSameAddress(member.address, address));
  return (
    <ul>
      {members.map((member) => {
        const { name, address, role } = member;
        const before = known(address);
        const replace = (next: MemberTerms[]): void => {
          onChange?.(members.flatMap((one) => (one === member ? next : [one])));
        };
        return (
          <li key={address} className={`list-row ${styles.member}`}>
            <div className={styles.who}>
              <Text component="div" fw={550}>
                {name} {isSameAddress(address, self) && <Badge>You</Badge>}
                {!before && <Badge color="yellow">New</Badge>}
              </Text>
              <Address value={address} />
              {before && (
                <Text span c="dimmed" size="sm">
                  {" "}
                  {accountKind(before.signsWith)}
                </Text>
              )}
            </div>
            {onChange ? (
              <NativeSelect
                aria-label={`Role of ${name}`}
                value={role}
                data={ROLES}
                onChange={(event) => {
                  replace([{ ...member, role: event.currentTarget.value as Role }]);
                }}
              />
            ) : (
              <Badge>{role}</Badge>
            )}
            {onChange && (
              <Button
                size="xs"
                onClick={() => {
                  replace([]);
                }}
              >
                Remove<span className="sr-only"> {name}</span>
              </Button>
            )}
          </li>
        );
      })}
    </ul>
  );
}
